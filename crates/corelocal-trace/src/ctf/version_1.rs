//! Metadata of version 1.8, in its own language.

use std::fmt::Write as _;

use corelocal::trace::format::Type;

use super::{Class, Member, classes, identifier};
use crate::{Recording, Site};

const HEAD: &str = r#"/* CTF 1.8 */

typealias integer { size = 8; align = 8; signed = false; } := u8;
typealias integer { size = 8; align = 8; signed = false; base = 16; } := x8;
typealias integer { size = 16; align = 8; signed = false; } := u16;
typealias integer { size = 32; align = 8; signed = false; } := u32;
typealias integer { size = 64; align = 8; signed = false; } := u64;
typealias integer { size = 8; align = 8; signed = true; } := i8;
typealias integer { size = 16; align = 8; signed = true; } := i16;
typealias integer { size = 32; align = 8; signed = true; } := i32;
typealias integer { size = 64; align = 8; signed = true; } := i64;
typealias floating_point { exp_dig = 8; mant_dig = 24; align = 8; byte_order = le; } := f32;
typealias floating_point { exp_dig = 11; mant_dig = 53; align = 8; byte_order = le; } := f64;

trace {
    major = 1;
    minor = 8;
    byte_order = le;
    packet.header := struct { u32 magic; u32 stream_id; } align(8);
};

clock {
    name = realtime;
    description = "Nanoseconds since 1970";
    freq = 1000000000;
    offset = 0;
    absolute = true;
};

typealias integer { size = 64; align = 8; signed = false; map = clock.realtime.value; } := time;
"#;

const STREAM: &str = r#"
stream {
    id = 0;
    packet.context := struct {
        time timestamp_begin; time timestamp_end; u64 content_size; u64 packet_size; u64 packet_seq_num; u64 events_discarded;
    } align(8);
    event.header := struct { u16 id; time timestamp; } align(8);
    event.context := struct { u32 _tid; u32 _cpu; string { encoding = UTF8; } _thread; u64 _span; } align(8);
};
"#;

pub(super) fn metadata(recording: &Recording) -> Vec<u8> {
    let mut text = String::from(HEAD);
    // To a string: never fails.
    let _ = write!(
        text,
        "\nenv {{\n    tracer_name = \"corelocal\";\n    vpid = {};\n}};\n{STREAM}",
        recording.process() as i32
    );
    for Class { id, name, members, site } in classes(recording) {
        // A site's name has no control characters.
        let name = name.replace('\\', "\\\\").replace('"', "\\\"");
        let _ = write!(
            text,
            "\nevent {{\n    name = \"{name}\";\n    id = {id};\n    stream_id = 0;\n    fields := struct {{\n"
        );
        for (name, member) in members {
            let _ = match &member {
                Member::Optional(is_there, member) => writeln!(
                    text,
                    "        variant <_{is_there}> {{ struct {{ }} _no; {} }} _{name};",
                    declaration("yes", member)
                ),
                Member::One(Type::Bool) if is_selector(&name, site) => {
                    writeln!(text, "        enum : u8 {{ _no = 0, _yes = 1 }} _{name};")
                }
                member => writeln!(text, "        {}", declaration(&name, member)),
            };
        }
        text += "    } align(8);\n};\n";
    }
    text.into_bytes()
}

/// Returns `true` if a member says that another one is there: no field has its name.
fn is_selector(name: &str, site: &Site) -> bool {
    name.starts_with("has_") && site.fields.iter().all(|(field, _)| identifier(field) != name)
}

fn declaration(name: &str, member: &Member) -> String {
    match member {
        Member::One(of) => format!("{} _{name};", type_name(*of)),
        Member::Many(Type::U8, len) => format!("x8 _{name}[_{len}];"),
        Member::Many(of, len) => format!("{} _{name}[_{len}];", type_name(*of)),
        // Not in one another.
        Member::Optional(_, member) => declaration(name, member),
    }
}

fn type_name(of: Type) -> &'static str {
    match of {
        Type::U8 | Type::Bool | Type::Bytes => "u8",
        Type::U16 => "u16",
        Type::U32 => "u32",
        Type::U64 | Type::Duration => "u64",
        Type::I8 => "i8",
        Type::I16 => "i16",
        Type::I32 => "i32",
        Type::I64 => "i64",
        Type::F32 => "f32",
        Type::F64 => "f64",
        Type::Str | Type::Any => "string { encoding = UTF8; }",
    }
}
