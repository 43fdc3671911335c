//! Values of fields.

use corelocal::trace::format::{FieldType, Type, WAS_CUT};
use serde::Serialize;
use serde_json::Value as Json;

/// The value of a field.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(untagged)]
pub enum Value {
    /// A value of an unsigned type.
    Unsigned(u64),
    /// A value of a signed type.
    Signed(i64),
    /// A value of a floating-point type.
    Float(f64),
    /// Of `bool`.
    Bool(bool),
    /// Of `Duration`: nanoseconds.
    Duration(u64),
    /// A string, with replacement characters where it is not UTF-8, and whether it was cut.
    Str(String, bool),
    /// A blob, and whether it was cut.
    Bytes(Vec<u8>, bool),
    /// An array of numbers, and whether it was cut.
    Array(Vec<Value>, bool),
    /// None: of a field whose values are of any type.
    Missing,
}

impl Value {
    /// Returns it as JSON: a blob as hexadecimal digits.
    pub fn to_json(&self) -> Json {
        match self {
            Value::Unsigned(number) | Value::Duration(number) => (*number).into(),
            Value::Signed(number) => (*number).into(),
            Value::Float(number) => (*number).into(),
            Value::Bool(is) => (*is).into(),
            Value::Str(..) => self.text().into(),
            Value::Bytes(bytes, _) => hex(bytes).into(),
            Value::Array(values, _) => values.iter().map(Value::to_json).collect(),
            Value::Missing => Json::Null,
        }
    }

    /// Returns `true` if only its beginning was recorded.
    pub fn is_cut(&self) -> bool {
        matches!(self, Value::Str(_, true) | Value::Bytes(_, true) | Value::Array(_, true))
    }

    /// Returns the text of a string, with an ellipsis if it was cut; of another value as JSON.
    pub fn text(&self) -> String {
        match self {
            Value::Str(text, was_cut) => {
                let mut text = text.clone();
                text.extend(was_cut.then_some('…'));
                text
            }
            value => value.to_json().to_string(),
        }
    }

    /// Takes a value from the beginning of the bytes.
    pub(crate) fn take(of: FieldType, bytes: &mut &[u8]) -> Option<Value> {
        if let (Some(len), false) = (of.of.size(), of.is_array) {
            return Some(number(of.of, take(bytes, len)?));
        }
        if of.of == Type::Any {
            return match take(bytes, 1)?[0] {
                0 => Some(Value::Missing),
                letter => match Type::of_letter(letter)? {
                    // A value of any type is not in another one.
                    Type::Any => None,
                    of => Value::take(of.into(), bytes),
                },
            };
        }
        let len = u16::from_le_bytes(take(bytes, 2)?.try_into().ok()?);
        let was_cut = len & WAS_CUT != 0;
        let taken = take(bytes, usize::from(len & !WAS_CUT))?;
        Some(match (of.of, of.of.size()) {
            (of, Some(size)) => Value::Array(
                taken.chunks_exact(size).map(|bytes| number(of, bytes)).collect(),
                was_cut,
            ),
            (Type::Str, None) => {
                let text = if was_cut { up_to_character(taken) } else { taken };
                Value::Str(String::from_utf8_lossy(text).into_owned(), was_cut)
            }
            (_, None) => Value::Bytes(taken.to_vec(), was_cut),
        })
    }
}

/// Returns the text that was cut, without a part of a character at its end.
fn up_to_character(text: &[u8]) -> &[u8] {
    match std::str::from_utf8(text) {
        Err(error) if error.error_len().is_none() => &text[..error.valid_up_to()],
        _ => text,
    }
}

/// Returns a number of a type that has a length, which is that of the bytes.
fn number(of: Type, bytes: &[u8]) -> Value {
    let mut word = [0; 8];
    let len = bytes.len().min(8);
    word[..len].copy_from_slice(&bytes[..len]);
    let unsigned = u64::from_le_bytes(word);
    match of {
        Type::I8 => Value::Signed((unsigned as i8).into()),
        Type::I16 => Value::Signed((unsigned as i16).into()),
        Type::I32 => Value::Signed((unsigned as i32).into()),
        Type::I64 => Value::Signed(unsigned as i64),
        Type::F32 => Value::Float(f32::from_bits(unsigned as u32).into()),
        Type::F64 => Value::Float(f64::from_bits(unsigned)),
        Type::Bool => Value::Bool(unsigned != 0),
        Type::Duration => Value::Duration(unsigned),
        Type::U8 | Type::U16 | Type::U32 | Type::U64 | Type::Str | Type::Bytes | Type::Any => {
            Value::Unsigned(unsigned)
        }
    }
}

fn take<'b>(bytes: &mut &'b [u8], len: usize) -> Option<&'b [u8]> {
    let (taken, rest) = bytes.split_at_checked(len)?;
    *bytes = rest;
    Some(taken)
}

/// Returns hexadecimal digits.
pub fn hex(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    let digits = bytes.iter().flat_map(|byte| [byte >> 4, byte & 15]);
    digits.map(|digit| char::from(DIGITS[usize::from(digit)])).collect()
}
