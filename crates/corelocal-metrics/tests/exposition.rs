//! What is recorded, rendered and read back by a strict reader of the format.

mod text;

use corelocal_metrics::{Builder, Handle, Recorder};
use metrics::{
    Label, Unit, counter, describe_counter, describe_gauge, describe_histogram, gauge, histogram,
    with_local_recorder,
};
use proptest::prelude::*;
use text::parse;

fn recorded(builder: Builder, record: impl FnOnce()) -> Handle {
    let recorder = builder.build().expect("a recorder");
    with_local_recorder(&recorder, record);
    recorder.handle()
}

/// To the letter, once.
#[test]
fn the_text_itself() {
    let handle = recorded(Recorder::builder().quantiles([0.5, 1.0]), || {
        describe_counter!("requests", "Requests\nso far");
        describe_histogram!("latency", Unit::Milliseconds, "Time of a request");
        counter!("requests", "path" => "/", "method" => "GET").increment(3);
        counter!("requests", "path" => "/\"x\"\\\n", "method" => "GET").increment(1);
        gauge!("temperature").set(-0.5);
        (1..=3).for_each(|ms| histogram!("latency").record(f64::from(ms)));
        histogram!("sizes", "disk" => "a").record(2000);
    });
    let expected = r#"# HELP requests Requests\nso far
# TYPE requests counter
requests{method="GET",path="/"} 3
requests{method="GET",path="/\"x\"\\\n"} 1
# TYPE temperature gauge
temperature -0.5
# HELP latency Time of a request (milliseconds)
# TYPE latency summary
latency{quantile="0.5"} 2
latency{quantile="1"} 3
latency_sum 6
latency_count 3
# TYPE sizes summary
sizes{disk="a",quantile="0.5"} 2000
sizes{disk="a",quantile="1"} 2000
sizes_sum{disk="a"} 2000
sizes_count{disk="a"} 1
"#;
    assert_eq!(handle.render(), expected);
}

#[test]
fn nothing_recorded_is_nothing_rendered() {
    let handle = recorded(Recorder::builder(), || describe_gauge!("later", "Nothing yet"));
    assert_eq!(handle.render(), "");
    assert!(parse("").families.is_empty());
}

#[test]
fn buckets_are_cumulative_and_exact() {
    let builder = Recorder::builder().buckets([1.0, 2.5]).buckets_for("by name", [100.0]);
    let handle = recorded(builder, || {
        for value in [0.5, 1.0, 1.5, 2.5, 2.6, f64::INFINITY, f64::NAN] {
            histogram!("usual", "le" => "mine").record(value);
        }
        histogram!("by.name").record_many(3.0, 4);
    });
    let seen = parse(&handle.render());
    assert_eq!(seen.kind("usual"), Some("histogram"));
    let upto = |le| seen.value("usual_bucket", &[("exported_le", "mine"), ("le", le)]);
    assert_eq!([upto("1"), upto("2.5"), upto("+Inf")], [Some(2.0), Some(4.0), Some(6.0)]);
    assert_eq!(seen.value("usual_sum", &[("exported_le", "mine")]), Some(f64::INFINITY));
    assert_eq!(seen.value("by_name_bucket", &[("le", "100")]), Some(4.0));
    assert_eq!(seen.value("by_name_sum", &[]), Some(12.0));
}

/// Names that two kinds want, or that are written alike, never make a text that a scrape refuses.
#[test]
fn names_do_not_collide() {
    let handle = recorded(Recorder::builder(), || {
        counter!("x").increment(1);
        gauge!("x").set(2.0);
        histogram!("x").record(3.0);
        counter!("x_count").increment(4);
        counter!("a.b", "k-1" => "v").increment(5);
        counter!("a_b", "k_1" => "v").increment(6);
        counter!("a b", "k.1" => "w", "k_1" => "v").increment(7);
        describe_gauge!("x", "of the gauge");
    });
    let seen = parse(&handle.render());
    assert_eq!(seen.value("x", &[]), Some(1.0));
    assert_eq!(seen.value("x_gauge", &[]), Some(2.0));
    assert_eq!(seen.help("x_gauge"), Some("of the gauge"));
    assert_eq!(seen.value("x_summary_count", &[]), Some(1.0));
    assert_eq!(seen.value("x_count", &[]), Some(4.0));
    assert_eq!(seen.value("a_b", &[("k_1", "v")]), Some(11.0));
    assert_eq!(seen.value("a_b", &[("k_1", "w;v")]), Some(7.0));
}

#[test]
fn handles_outlive_their_recorder() {
    let recorder = Recorder::default();
    let hits = with_local_recorder(&recorder, || counter!("hits"));
    let handle = recorder.handle();
    drop(recorder);
    hits.increment(1);
    assert_eq!(parse(&handle.render()).value("hits", &[]), Some(1.0));
    drop(handle);
    hits.increment(1);
}

/// Many more series than a core keeps lookups of.
#[test]
fn thousands_of_series() {
    let handle = recorded(Recorder::builder(), || {
        for round in 0..3 {
            for number in 0..5000u64 {
                counter!("series", "number" => number.to_string()).increment(number + round);
            }
        }
    });
    let seen = parse(&handle.render());
    for number in 0..5000u64 {
        let value = seen.value("series", &[("number", &number.to_string())]);
        assert_eq!(value, Some((3 * number + 3) as f64));
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    /// Whatever stands in names, labels and descriptions, the text can be read, and the values of labels
    /// are what they were.
    #[test]
    fn any_text(
        name in any::<String>(),
        key in any::<String>(),
        value in prop_oneof![any::<String>(), "[\\\\\n\"a]{0,8}"],
        words in prop_oneof![any::<String>(), "[\\\\\n\"a]{0,8}"],
        number: f64,
    ) {
        let label = || vec![Label::new(key.clone(), value.clone())];
        let handle = recorded(Recorder::builder(), || {
            describe_gauge!(name.clone(), words.clone());
            gauge!(name.clone(), label()).set(number);
            counter!(name.clone(), label()).increment(1);
            histogram!(name.clone(), label()).record(number);
            histogram!(name.clone(), Vec::<Label>::new()).record(1.0);
        });
        let seen = parse(&handle.render());
        prop_assert_eq!(seen.families.len(), 3);
        let family = seen.families.values().find(|family| family.kind == "gauge").unwrap();
        prop_assert_eq!(family.help.as_deref(), Some(words.as_str()));
        let ((_, labels), read) = family.samples.iter().next().unwrap();
        prop_assert_eq!(labels.values().collect::<Vec<_>>(), [&value]);
        prop_assert!(*read == number || read.is_nan() && number.is_nan());
    }
}
