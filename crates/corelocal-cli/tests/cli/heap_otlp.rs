//! `corelocal heap --otlp`: a collector on this machine that takes apart what comes, by the schema.

use std::collections::HashSet;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpListener;
use std::thread::{self, JoinHandle};

use opentelemetry_proto::tonic::collector::profiles::v1development::{
    ExportProfilesPartialSuccess, ExportProfilesServiceRequest, ExportProfilesServiceResponse,
};
use opentelemetry_proto::tonic::common::v1::AnyValue;
use opentelemetry_proto::tonic::common::v1::any_value::Value;
use opentelemetry_proto::tonic::profiles::v1development::{Profile, ProfilesDictionary};
use prost::Message as _;

use crate::corelocal;
use crate::heap::{heap_of_program, library};

/// A request: its first line, and its body, unpacked.
type Came = (String, Vec<u8>);

/// Takes one request, and answers it so.
fn collector(status: &'static str, body: Vec<u8>) -> (String, JoinHandle<Came>) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = format!("http://{}", listener.local_addr().expect("an address"));
    let came = thread::spawn(move || {
        let (mut stream, _) = listener.accept().expect("a client");
        let mut lines = BufReader::new(stream.try_clone().expect("a descriptor"));
        let mut line = || {
            let mut line = String::new();
            lines.read_line(&mut line).expect("a line");
            line.trim_end().to_ascii_lowercase()
        };
        let first = line();
        let (mut len, mut is_packed, mut is_protobuf) = (0, false, false);
        loop {
            let line = line();
            match line.split_once(": ") {
                Some(("content-length", value)) => len = value.parse().expect("a number"),
                Some(("content-encoding", value)) => is_packed = value == "gzip",
                Some(("content-type", value)) => is_protobuf = value == "application/x-protobuf",
                Some(_) => {}
                None => break,
            }
        }
        assert!(is_packed && is_protobuf);
        let mut packed = vec![0; len];
        lines.read_exact(&mut packed).expect("a body");
        let mut plain = Vec::new();
        flate2::read::GzDecoder::new(&packed[..]).read_to_end(&mut plain).expect("gzip");
        let head = format!("HTTP/1.1 {status}\r\nContent-Length: {}\r\n\r\n", body.len());
        stream.write_all(head.as_bytes()).expect("an answer");
        stream.write_all(&body).expect("an answer");
        (first, plain)
    });
    (address, came)
}

/// Checks what the schema says of a dictionary: the first entries are empty, none is there twice, and numbers are in range.
fn check(dictionary: &ProfilesDictionary, profiles: &[&Profile]) {
    fn has_empty_first<T: Default + PartialEq + std::fmt::Debug>(table: &[T]) {
        assert_eq!(table.first(), Some(&T::default()));
    }
    has_empty_first(&dictionary.mapping_table);
    has_empty_first(&dictionary.location_table);
    has_empty_first(&dictionary.function_table);
    has_empty_first(&dictionary.link_table);
    has_empty_first(&dictionary.string_table);
    has_empty_first(&dictionary.attribute_table);
    has_empty_first(&dictionary.stack_table);
    fn has_none_twice<T: prost::Message>(table: &[T]) {
        let all: HashSet<Vec<u8>> = table.iter().map(|entry| entry.encode_to_vec()).collect();
        assert_eq!(all.len(), table.len());
    }
    has_none_twice(&dictionary.mapping_table);
    has_none_twice(&dictionary.location_table);
    has_none_twice(&dictionary.function_table);
    has_none_twice(&dictionary.attribute_table);
    has_none_twice(&dictionary.stack_table);
    let texts: HashSet<&String> = dictionary.string_table.iter().collect();
    assert_eq!(texts.len(), dictionary.string_table.len());
    // What is referred to, by table: stacks, attributes, locations, mappings, functions, texts.
    let mut used: [HashSet<i32>; 6] = Default::default();
    for profile in profiles {
        for kind in [profile.sample_type, profile.period_type] {
            let kind = kind.expect("a kind");
            used[5].extend([kind.type_strindex, kind.unit_strindex]);
        }
        for sample in &profile.samples {
            used[0].insert(sample.stack_index);
            used[1].extend(&sample.attribute_indices);
            assert_eq!(sample.values.len(), 1);
        }
    }
    let entries =
        |used: &HashSet<i32>| -> Vec<usize> { used.iter().map(|it| *it as usize).collect() };
    for stack in entries(&used[0]) {
        used[2].extend(&dictionary.stack_table[stack].location_indices);
    }
    for location in entries(&used[2]) {
        let location = &dictionary.location_table[location];
        used[1].extend(&location.attribute_indices);
        used[3].insert(location.mapping_index);
        used[4].extend(location.lines.iter().map(|line| line.function_index));
        if location.mapping_index != 0 {
            let mapping = &dictionary.mapping_table[location.mapping_index as usize];
            assert!((mapping.memory_start..mapping.memory_limit).contains(&location.address));
        }
    }
    for mapping in entries(&used[3]) {
        used[5].insert(dictionary.mapping_table[mapping].filename_strindex);
    }
    for function in entries(&used[4]) {
        let function = &dictionary.function_table[function];
        let texts = [function.name_strindex, function.system_name_strindex];
        used[5].extend(texts);
        used[5].insert(function.filename_strindex);
    }
    for attribute in entries(&used[1]) {
        let attribute = &dictionary.attribute_table[attribute];
        used[5].extend([attribute.key_strindex, attribute.unit_strindex]);
    }
    let lens = [
        dictionary.stack_table.len(),
        dictionary.attribute_table.len(),
        dictionary.location_table.len(),
        dictionary.mapping_table.len(),
        dictionary.function_table.len(),
        dictionary.string_table.len(),
    ];
    for (nth, (used, len)) in used.iter().zip(lens).enumerate() {
        let used = used.iter().filter(|number| **number != 0).count();
        assert_eq!(used, len - 1, "unused entries in table {nth}");
    }
}

fn text(value: Option<&AnyValue>) -> String {
    match value.and_then(|value| value.value.clone()) {
        Some(Value::StringValue(text)) => text,
        Some(Value::IntValue(number)) => number.to_string(),
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_collector_gets_whole_profiles() {
    let Some(library) = library("a_collector_gets_whole_profiles") else { return };
    let (address, came) = collector("200 OK", Vec::new());
    let options = ["--otlp", &address, "--json", "--rate", "32K"];
    let done = heap_of_program(&library, &options, "0").env("OTEL_SERVICE_NAME", "holder").done();
    assert_eq!(done.code, Some(0), "{}", done.whole());
    let (first, body) = came.join().expect("the collector");
    assert!(first.starts_with("post /v1development/profiles http/1.1"), "{first}");
    assert!(done.err.contains("sent ") && done.err.contains(&address), "{}", done.err);
    let request = ExportProfilesServiceRequest::decode(&body[..]).expect("the message");
    let dictionary = request.dictionary.as_ref().expect("a dictionary");
    let [resource] = &request.resource_profiles[..] else { panic!("one process") };
    let attributes = &resource.resource.as_ref().expect("a resource").attributes;
    let attribute = |key: &str| {
        let found = attributes.iter().find(|it| it.key == key);
        text(found.unwrap_or_else(|| panic!("no {key}")).value.as_ref())
    };
    assert_eq!(attribute("service.name"), "holder");
    assert!(attribute("process.executable.path").ends_with(&attribute("process.executable.name")));
    assert!(attribute("process.pid").parse::<u32>().is_ok() && !attribute("host.name").is_empty());
    let profiles: Vec<&Profile> =
        resource.scope_profiles.iter().flat_map(|scope| &scope.profiles).collect();
    check(dictionary, &profiles);
    let named = |number: i32| dictionary.string_table[number as usize].as_str();
    let kinds: Vec<(&str, &str)> = profiles
        .iter()
        .map(|profile| profile.sample_type.expect("a kind"))
        .map(|kind| (named(kind.type_strindex), named(kind.unit_strindex)))
        .collect();
    assert_eq!(kinds, [("inuse_objects", "count"), ("inuse_space", "bytes")]);
    assert!(
        profiles.iter().all(|profile| profile.period == 32 << 10 && profile.time_unix_nano > 0)
    );
    // The memory of the three functions, with their names.
    let space = profiles[1];
    for (name, mib) in [("holds_sixty", 60), ("holds_thirty", 30), ("holds_ten", 10)] {
        let is_of = |stack: i32| {
            let locations = &dictionary.stack_table[stack as usize].location_indices;
            locations.iter().any(|location| {
                let lines = &dictionary.location_table[*location as usize].lines;
                lines.iter().any(|line| {
                    let function = &dictionary.function_table[line.function_index as usize];
                    named(function.name_strindex).contains(name)
                        && named(function.filename_strindex).ends_with("heap.rs")
                        && line.line > 0
                })
            })
        };
        let samples = space.samples.iter().filter(|sample| is_of(sample.stack_index));
        let bytes: i64 = samples.map(|sample| sample.values[0]).sum();
        let ratio = bytes as f64 / f64::from(mib << 20);
        assert!((0.8..1.3).contains(&ratio), "{name}: {ratio}");
    }
}

/// Whatever the collector says, the report is there.
#[test]
fn refusals_are_told() {
    let Some(library) = library("refusals_are_told") else { return };
    let partial = ExportProfilesServiceResponse {
        partial_success: Some(ExportProfilesPartialSuccess {
            rejected_profiles: 2,
            error_message: "too many".to_owned(),
        }),
    };
    let answers = [
        ("200 OK", partial.encode_to_vec(), "refused 2 profiles: too many"),
        ("404 Not Found", b"404 page not found".to_vec(), "behind a feature gate"),
        ("503 Service Unavailable", b"\x1b[31mfull".to_vec(), "try again later"),
    ];
    for (status, body, says) in answers {
        let (address, came) = collector(status, body);
        let done = heap_of_program(&library, &["--otlp", &address], "few").done();
        came.join().expect("the collector");
        assert_eq!(done.code, Some(1), "{}", done.whole());
        assert!(done.err.contains(says), "{}", done.err);
        assert!(done.err.contains("Heap of") && !done.err.contains("\x1b[31m"), "{}", done.err);
    }
    let done = heap_of_program(&library, &["--otlp", "http://127.0.0.1:9"], "few").done();
    assert!(done.err.contains("is it running there?"), "{}", done.err);
    let both = corelocal(&["heap", "--diff", "a.heap", "--otlp", "http://x", "b.heap"]);
    assert_eq!(both.code, Some(2), "{}", both.whole());
    // A wrong address does not cost a run of the program.
    for wrong in ["localhost:4318", "http://", "https://collector"] {
        let done = heap_of_program(&library, &["--otlp", wrong], "few").done();
        assert!(done.code == Some(2) && !done.out.contains("begun"), "{}", done.whole());
    }
}
