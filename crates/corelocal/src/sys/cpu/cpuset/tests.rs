//! The list notation against a naive parser that splits strings, on lists and on arbitrary bytes.

use super::*;
use proptest::prelude::*;
use std::collections::BTreeSet;
use std::string::{String, ToString};
use std::vec::Vec;

/// The same language, written for obviousness.
fn naive(list: &[u8]) -> Option<BTreeSet<usize>> {
    let text = std::str::from_utf8(list).ok()?;
    let text = text.strip_suffix('\n').unwrap_or(text);
    let mut set = BTreeSet::new();
    if text.is_empty() {
        return Some(set);
    }
    let number = |digits: &str| {
        let all_digits = !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit());
        let trimmed = digits.trim_start_matches('0');
        let value = if trimmed.is_empty() { Ok(0) } else { trimmed.parse::<usize>() };
        value.ok().filter(|&value| all_digits && value < CpuSet::CAPACITY)
    };
    for item in text.split(',') {
        let (first, last) = item.split_once('-').unwrap_or((item, item));
        let (first, last) = (number(first)?, number(last)?);
        if first > last {
            return None;
        }
        set.extend(first..=last);
    }
    Some(set)
}

fn members(set: &CpuSet) -> BTreeSet<usize> {
    set.iter().collect()
}

proptest! {
    #[test]
    fn round_trip(ids in prop::collection::btree_set(0..CpuSet::CAPACITY, 0..200)) {
        let mut set = CpuSet::new();
        for &id in &ids {
            prop_assert!(set.insert(id));
        }
        prop_assert_eq!(set.count(), ids.len());
        prop_assert_eq!(set.max(), ids.last().copied());
        prop_assert_eq!(members(&set), ids);
        prop_assert_eq!(CpuSet::parse(set.to_string().as_bytes()), Ok(set));
    }

    #[test]
    fn list_like_bytes_agree_with_the_naive_parser(list in "[0-9,\\-\n ]{0,24}") {
        let parsed = CpuSet::parse(list.as_bytes()).ok();
        prop_assert_eq!(parsed.as_ref().map(members), naive(list.as_bytes()));
    }

    #[test]
    fn lists_agree_with_the_naive_parser(
        ranges in prop::collection::vec((0..9000usize, 0..70usize), 1..40)
    ) {
        let items: Vec<String> =
            ranges.iter().map(|(first, more)| std::format!("{first}-{}", first + more)).collect();
        let list = items.join(",");
        let parsed = CpuSet::parse(list.as_bytes()).ok();
        prop_assert_eq!(parsed.as_ref().map(members), naive(list.as_bytes()));
    }

    #[test]
    fn arbitrary_bytes(list in prop::collection::vec(any::<u8>(), 0..64)) {
        let parsed = CpuSet::parse(&list).ok();
        prop_assert_eq!(parsed.as_ref().map(members), naive(&list));
    }

    #[test]
    fn first_is_a_prefix(end in 0..9000usize) {
        let set = CpuSet::first(end);
        prop_assert_eq!(members(&set), (0..end.min(CpuSet::CAPACITY)).collect());
    }
}

#[test]
fn errors_say_where_and_what() {
    let error = |list: &str| CpuSet::parse(list.as_bytes()).unwrap_err().to_string();
    assert_eq!(error("0-"), "a number is missing at byte 2; write a list such as 0-3,8");
    assert_eq!(error(",1"), "a number is missing at byte 0; write a list such as 0-3,8");
    assert_eq!(error("0,,1"), "a number is missing at byte 2; write a list such as 0-3,8");
    assert_eq!(error("0-3x"), "unexpected 'x' at byte 3; write a list such as 0-3,8");
    assert_eq!(error("0-1-2"), "unexpected '-' at byte 3; write a list such as 0-3,8");
    assert_eq!(error("0\n1"), "unexpected '1' at byte 2; write a list such as 0-3,8");
    assert_eq!(error("9,8192"), "the number at byte 5 is above 8191; write a list such as 0-3,8");
    assert_eq!(
        error("3-1,4"),
        "the range at byte 3 ends before it begins; write a list such as 0-3,8"
    );
}

#[test]
fn empty_and_full() {
    assert!(CpuSet::parse(b"").unwrap().is_empty());
    assert!(CpuSet::parse(b"\n").unwrap().is_empty());
    assert_eq!(CpuSet::new().max(), None);
    assert!(!CpuSet::new().contains(usize::MAX));
    assert!(!CpuSet::new().insert(CpuSet::CAPACITY));
    let full = CpuSet::parse(b"0-8191").unwrap();
    assert_eq!(full, CpuSet::first(CpuSet::CAPACITY));
    assert_eq!(full.to_string(), "0-8191");
    assert_eq!("0-1".parse::<NodeSet>().unwrap().count(), 2);
}
