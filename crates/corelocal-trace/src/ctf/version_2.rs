//! Metadata of version 2: a sequence of JSON texts (RFC 7464).

use corelocal::trace::format::Type;
use serde_json::{Value as Json, json};

use super::{Member, classes};
use crate::{Kind, Recording};

pub(super) fn metadata(recording: &Recording) -> Vec<u8> {
    let unsigned = |bits: usize, roles: &[&str]| {
        let mut class = integer("unsigned", bits);
        if !roles.is_empty() {
            class["roles"] = json!(roles);
        }
        class
    };
    let mut fragments = vec![
        json!({ "type": "preamble", "version": 2 }),
        json!({
            "type": "trace-class",
            "environment": { "tracer_name": "corelocal", "vpid": recording.process() as i32 },
            "packet-header-field-class": structure(vec![
                ("magic".into(), unsigned(32, &["packet-magic-number"])),
                ("stream_id".into(), unsigned(32, &["data-stream-class-id"])),
            ]),
        }),
        json!({
            "type": "clock-class", "id": "realtime", "name": "realtime", "frequency": 1_000_000_000, "origin": "unix-epoch",
            "description": "Nanoseconds since 1970",
        }),
        json!({
            "type": "data-stream-class",
            "default-clock-class-id": "realtime",
            "packet-context-field-class": structure(vec![
                ("timestamp_begin".into(), unsigned(64, &["default-clock-timestamp"])),
                ("timestamp_end".into(), unsigned(64, &["packet-end-default-clock-timestamp"])),
                ("content_size".into(), unsigned(64, &["packet-content-length"])),
                ("packet_size".into(), unsigned(64, &["packet-total-length"])),
                ("packet_seq_num".into(), unsigned(64, &["packet-sequence-number"])),
                ("events_discarded".into(), unsigned(64, &["discarded-event-record-counter-snapshot"])),
            ]),
            "event-record-header-field-class": structure(vec![
                ("id".into(), unsigned(16, &["event-record-class-id"])),
                ("timestamp".into(), unsigned(64, &["default-clock-timestamp"])),
            ]),
            "event-record-common-context-field-class": structure(vec![
                ("tid".into(), unsigned(32, &[])),
                ("cpu".into(), unsigned(32, &[])),
                ("thread".into(), json!({ "type": "null-terminated-string" })),
                ("span".into(), unsigned(64, &[])),
            ]),
        }),
    ];
    for class in classes(recording) {
        let mut members = Vec::new();
        for (name, member) in class.members {
            members.push((name, field_class(&member)));
        }
        let mut fragment = json!({
            "type": "event-record-class", "id": class.id, "name": class.name,
            "payload-field-class": structure(members),
        });
        if class.site.kind == Kind::TaskSpan {
            fragment["attributes"] = json!({ "corelocal": { "kind": "task" } });
        }
        fragments.push(fragment);
    }
    let text = fragments.iter().map(|fragment| format!("\u{1e}{fragment}\n"));
    text.collect::<String>().into_bytes()
}

fn structure(members: Vec<(String, Json)>) -> Json {
    let member = |(name, class)| json!({ "name": name, "field-class": class });
    json!({
        "type": "structure", "member-classes": members.into_iter().map(member).collect::<Vec<_>>(), "minimum-alignment": 8,
    })
}

fn integer(kind: &str, bits: usize) -> Json {
    json!({
        "type": format!("fixed-length-{kind}-integer"), "length": bits, "byte-order": "little-endian", "alignment": 8,
    })
}

fn field_class(member: &Member) -> Json {
    let location = |len: &str| json!({ "origin": "event-record-payload", "path": [len] });
    match member {
        Member::Many(Type::U8, len) => json!({
            "type": "dynamic-length-blob", "length-field-location": location(len),
        }),
        Member::Many(of, len) => json!({
            "type": "dynamic-length-array", "length-field-location": location(len), "element-field-class": value(*of),
        }),
        Member::One(of) => value(*of),
        Member::Optional(is_there, member) => json!({
            "type": "optional", "selector-field-location": location(is_there), "field-class": field_class(member),
        }),
    }
}

fn value(of: Type) -> Json {
    let bits = 8 * of.size().unwrap_or(1);
    let fixed = |kind: &str| json!({ "type": kind, "length": bits, "byte-order": "little-endian", "alignment": 8 });
    match of {
        Type::I8 | Type::I16 | Type::I32 | Type::I64 => integer("signed", bits),
        Type::F32 | Type::F64 => fixed("fixed-length-floating-point-number"),
        Type::Bool => fixed("fixed-length-boolean"),
        Type::Str | Type::Any => json!({ "type": "null-terminated-string" }),
        Type::U8 | Type::U16 | Type::U32 | Type::U64 | Type::Duration | Type::Bytes => {
            integer("unsigned", bits)
        }
    }
}
