//! A strict reader of the Prometheus text format, version 0.0.4. It panics at what the format does not
//! allow, and at what a scrape would refuse: a family told twice, a sample outside of its family, a sample
//! told twice, buckets that fall.

use std::collections::{BTreeMap, HashSet};

/// A sample's labels, by name.
pub type Labels = BTreeMap<String, String>;

#[derive(Debug, Default)]
pub struct Family {
    pub kind: String,
    pub help: Option<String>,
    /// By the sample's name and its labels.
    pub samples: BTreeMap<(String, Labels), f64>,
}

#[derive(Debug, Default)]
pub struct Exposition {
    pub families: BTreeMap<String, Family>,
}

#[allow(dead_code, reason = "each test binary uses some of them")]
impl Exposition {
    /// The value of a sample.
    pub fn value(&self, name: &str, labels: &[(&str, &str)]) -> Option<f64> {
        let labels = labels.iter().map(|&(name, value)| (name.into(), value.into())).collect();
        let sample = (name.to_owned(), labels);
        self.families.values().find_map(|family| family.samples.get(&sample)).copied()
    }

    pub fn kind(&self, name: &str) -> Option<&str> {
        self.families.get(name).map(|family| family.kind.as_str())
    }

    pub fn help(&self, name: &str) -> Option<&str> {
        self.families.get(name)?.help.as_deref()
    }
}

pub fn parse(text: &str) -> Exposition {
    assert!(text.is_empty() || text.ends_with('\n'), "the last line has no end");
    let mut exposition = Exposition::default();
    let mut current: Option<(String, Family)> = None;
    let mut help: Option<(String, String)> = None;
    let mut seen = HashSet::new();
    for line in text.strip_suffix('\n').unwrap_or_default().split('\n') {
        if text.is_empty() {
            break;
        }
        if let Some(rest) = line.strip_prefix("# HELP ") {
            assert!(help.is_none(), "two lines of help in a row");
            let (name, words) = rest.split_once(' ').expect("help has a name and a text");
            help = Some((metric_name(name), unescape(words, false)));
        } else if let Some(rest) = line.strip_prefix("# TYPE ") {
            let (name, kind) = rest.split_once(' ').expect("a type has a name and a kind");
            assert!(["counter", "gauge", "summary", "histogram"].contains(&kind), "{line}");
            finish(&mut exposition, current.take());
            let mut family = Family { kind: kind.into(), ..Family::default() };
            if let Some((of, words)) = help.take() {
                assert_eq!(of, name, "help of another family");
                family.help = Some(words);
            }
            current = Some((metric_name(name), family));
        } else {
            assert!(help.is_none(), "help without a type");
            let (sample, value) = sample(line);
            let (name, family) = current.as_mut().expect("a type before the sample");
            assert!(belongs(name, &family.kind, &sample), "{line} in {name}");
            assert!(seen.insert(sample.clone()), "told twice: {line}");
            family.samples.insert(sample, value);
        }
    }
    assert!(help.is_none(), "help at the end");
    finish(&mut exposition, current);
    exposition
}

fn finish(exposition: &mut Exposition, family: Option<(String, Family)>) {
    let Some((name, family)) = family else { return };
    assert!(!family.samples.is_empty(), "{name} has no samples");
    if family.kind == "histogram" {
        check_buckets(&name, &family);
    }
    assert!(exposition.families.insert(name.clone(), family).is_none(), "{name} is told twice");
}

/// Counts rise with the bounds, and the last one is the count.
fn check_buckets(name: &str, family: &Family) {
    let mut series: BTreeMap<Labels, Vec<(f64, f64)>> = BTreeMap::new();
    for ((sample, labels), &value) in &family.samples {
        if *sample == format!("{name}_bucket") {
            let mut labels = labels.clone();
            let bound = number(&labels.remove("le").expect("a bucket has a bound"));
            series.entry(labels).or_default().push((bound, value));
        }
    }
    for (labels, mut buckets) in series {
        buckets.sort_by(|a, b| a.0.total_cmp(&b.0));
        assert!(buckets.windows(2).all(|pair| pair[0].1 <= pair[1].1), "{name}: {buckets:?}");
        let last = buckets.last().expect("a bucket");
        assert_eq!(last.0, f64::INFINITY);
        assert_eq!(family.samples.get(&(format!("{name}_count"), labels)), Some(&last.1));
    }
}

fn belongs(family: &str, kind: &str, (name, labels): &(String, Labels)) -> bool {
    let rest = name.strip_prefix(family);
    match kind {
        "counter" | "gauge" => rest == Some(""),
        "summary" => match rest {
            Some("") => labels.contains_key("quantile"),
            rest => matches!(rest, Some("_sum" | "_count")),
        },
        _ => match rest {
            Some("_bucket") => labels.contains_key("le"),
            rest => matches!(rest, Some("_sum" | "_count")),
        },
    }
}

fn sample(line: &str) -> ((String, Labels), f64) {
    let end = line.find(['{', ' ']).expect("a sample has a value");
    let (name, mut rest) = line.split_at(end);
    let mut labels = Labels::new();
    if let Some(list) = rest.strip_prefix('{') {
        rest = list;
        loop {
            let (name, after) = rest.split_once("=\"").expect("a label has a value");
            let end = closing_quote(after);
            let value = unescape(&after[..end], true);
            assert!(labels.insert(label_name(name), value).is_none(), "a label twice: {line}");
            rest = &after[end + 1..];
            match rest.strip_prefix(',') {
                Some(more) => rest = more,
                None => break,
            }
        }
        rest = rest.strip_prefix('}').expect("labels end");
    }
    let value = rest.strip_prefix(' ').expect("a space before the value");
    ((metric_name(name), labels), number(value))
}

fn closing_quote(text: &str) -> usize {
    let mut escaped = false;
    for (at, c) in text.char_indices() {
        match c {
            '"' if !escaped => return at,
            '\\' => escaped = !escaped,
            _ => escaped = false,
        }
    }
    panic!("no closing quote: {text}");
}

fn unescape(text: &str, quotes: bool) -> String {
    let mut chars = text.chars();
    let mut out = String::new();
    while let Some(c) = chars.next() {
        match c {
            '\\' => match chars.next() {
                Some('\\') => out.push('\\'),
                Some('n') => out.push('\n'),
                Some('"') if quotes => out.push('"'),
                other => panic!("no such escape: {other:?}"),
            },
            '"' if quotes => panic!("a quote that is not escaped: {text}"),
            c => out.push(c),
        }
    }
    out
}

fn number(text: &str) -> f64 {
    match text {
        "NaN" => f64::NAN,
        "+Inf" => f64::INFINITY,
        "-Inf" => f64::NEG_INFINITY,
        digits => {
            let allowed = |c: char| c.is_ascii_digit() || "+-.e".contains(c);
            assert!(digits.chars().all(allowed), "no number: {digits}");
            digits.parse().expect("a number")
        }
    }
}

fn metric_name(name: &str) -> String {
    name_of(name, |c| c == ':')
}

fn label_name(name: &str) -> String {
    assert!(!name.starts_with("__"), "{name} is reserved");
    name_of(name, |_| false)
}

fn name_of(name: &str, also: impl Fn(char) -> bool) -> String {
    let first = name.chars().next().expect("a name is not empty");
    assert!(!first.is_ascii_digit(), "{name}");
    assert!(name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_' || also(c)), "{name}");
    name.to_owned()
}
