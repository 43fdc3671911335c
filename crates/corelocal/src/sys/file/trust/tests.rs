//! Tests of `trust.rs`.

use super::*;

fn file(owner: u32, mode: u32, links: u64) -> FileStatus {
    FileStatus { len: 0, is_regular: true, is_device: false, mode, owner, links, identity: (1, 2) }
}

#[test]
fn each_demand_is_checked() {
    let (own, third) = (user(), 60_000);
    let good = file(own, 0o644, 1);
    assert_eq!(Rule::TRUSTED.judge(&good), Ok(()));
    assert_eq!(Rule::TRUSTED.judge(&file(ROOT, 0o600, 1)), Ok(()));
    // Memory without a name has none.
    assert_eq!(Rule::TRUSTED.judge(&file(own, 0o600, 0)), Ok(()));
    for mode in [0o664, 0o602, 0o666] {
        let others = file(own, mode, 1);
        assert_eq!(Rule::TRUSTED.judge(&others), Err(Refused::Mode(others)), "{mode:o}");
    }
    assert_eq!(Rule::TRUSTED.judge(&file(own, 0o600, 2)), Err(Refused::Linked(2)));
    let foreign = file(third, 0o600, 1);
    assert_eq!(Rule::TRUSTED.judge(&foreign), Err(Refused::Owner(foreign)));
    let named = Rule { owners: Owners::OwnOrRootOr(third), ..Rule::TRUSTED };
    assert_eq!((named.judge(&foreign), named.judge(&good)), (Ok(()), Ok(())));
    let alone = Rule { owners: Owners::Own, refused_mode: OTHERS_ALL, ..Rule::TRUSTED };
    assert_eq!(alone.judge(&good), Err(Refused::Mode(good)));
    assert_eq!(Owners::Own.include(ROOT), own == ROOT);
    let any = Rule { owners: Owners::Any, ..Rule::TRUSTED };
    assert_eq!(any.judge(&foreign), Ok(()));
}

#[test]
fn folders() {
    let (own, other) = (user(), 60_000);
    // SAFETY: no preconditions.
    let group = unsafe { libc::getegid() };
    for (owner, group, mode, is_trusted) in [
        (own, group, 0o700, true),
        (ROOT, 0, 0o755, true),
        (own, group, 0o775, true),
        (own, 60_000, 0o775, false),
        (own, group, 0o777, false),
        (ROOT, 0, 0o1777, true),
        (other, group, 0o700, false),
        (other, group, 0o1777, false),
    ] {
        assert_eq!(is_trusted_folder(owner, group, mode), is_trusted, "{owner} {group} {mode:o}");
    }
}

#[test]
fn devices_are_allowed_where_they_are_meant() {
    let device = FileStatus { is_regular: false, is_device: true, ..file(ROOT, 0o666, 1) };
    assert_eq!(Rule::TRUSTED.judge(&device), Err(Refused::Kind));
    let pages = Rule { may_be_device: true, ..Rule::TRUSTED };
    assert_eq!(pages.judge(&device), Ok(()));
    let foreign = FileStatus { owner: 60_000, ..device };
    assert_eq!(pages.judge(&foreign), Err(Refused::Owner(foreign)));
    assert_eq!(pages.judge(&FileStatus { is_device: false, ..device }), Err(Refused::Kind));
}
