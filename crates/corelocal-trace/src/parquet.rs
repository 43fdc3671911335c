//! Parquet: tables of events, for DuckDB, Spark and others.
//!
//! One row is an event, or the begin or the end of a span. Times are nanoseconds in 64-bit integers. A field has a column of
//! its name; fields of the same name and type share it. If a name has several types, or differs from another one in the case of
//! its letters only, each type has a column `NAME/TYPE`, whichever was reached first. `cut` has the names of strings, blobs and
//! arrays of which only the beginning was recorded; a field without room has no value. `trace_id`,
//! `span_id` and `parent_id` are hexadecimal digits, as in W3C's trace context, so tables of several processes and machines
//! can be joined by them. An end has `duration_ns`.
//!
//! # Invariants
//! 1. The memory in use is that of a group of rows, and does not grow with the number of events.
//! 2. With partitions, a file has the events of one hour (UTC): `date=2026-11-26/hour=09/…`. Another dump of the same process
//!    has files of other names.

mod columns;
mod store;

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};

use parquet::arrow::ArrowWriter;
use parquet::basic::Compression;
use parquet::errors::ParquetError;
use parquet::file::properties::WriterProperties;

use self::columns::Rows;
pub use self::store::upload;
use crate::{Event, Recording, date};

/// Rows that are written at once.
const BATCH: usize = 1 << 16;
const HOUR: u64 = 3600 * 1_000_000_000;

/// Writes the events to a file.
///
/// Linear in the number of events and columns.
///
/// # Errors
/// The file cannot be written.
pub fn write_file<'r>(
    recording: &'r Recording,
    events: &mut dyn Iterator<Item = Event<'r>>,
    to: File,
) -> io::Result<()> {
    let mut rows = Rows::new(recording);
    let mut writer = begin(to, &rows)?;
    for event in events {
        rows.push(&event);
        if rows.len == BATCH {
            writer.write(&rows.take().map_err(io::Error::other)?).map_err(io_error)?;
        }
    }
    writer.write(&rows.take().map_err(io::Error::other)?).map_err(io_error)?;
    writer.close().map(drop).map_err(io_error)
}

/// Writes the events to a file, or with `is_partitioned` to files below a folder. Returns the files.
///
/// Linear in the number of events and columns.
///
/// # Errors
/// A file cannot be written.
pub fn write<'r>(
    recording: &'r Recording,
    events: &mut dyn Iterator<Item = Event<'r>>,
    to: &Path,
    is_partitioned: bool,
) -> io::Result<Vec<PathBuf>> {
    let mut rows = Rows::new(recording);
    let mut files = Vec::new();
    let mut open: Option<(u64, ArrowWriter<File>)> = None;
    let flush = |rows: &mut Rows, open: &mut Option<(u64, ArrowWriter<File>)>| {
        let Some((_, writer)) = open else { return Ok(()) };
        writer.write(&rows.take().map_err(io::Error::other)?).map_err(io_error)
    };
    if !is_partitioned {
        files.push(to.to_owned());
        write_file(recording, events, File::create(to)?)?;
        return Ok(files);
    }
    for event in events {
        let hour = event.time / HOUR;
        if open.as_ref().is_none_or(|(of, _)| *of != hour) {
            flush(&mut rows, &mut open)?;
            if let Some((_, writer)) = open.take() {
                writer.close().map_err(io_error)?;
            }
            let path = to.join(part(recording, hour));
            fs::create_dir_all(path.parent().unwrap_or(to))?;
            open = Some((hour, begin(File::create(&path)?, &rows)?));
            files.push(path);
        }
        rows.push(&event);
        if rows.len == BATCH {
            flush(&mut rows, &mut open)?;
        }
    }
    flush(&mut rows, &mut open)?;
    if let Some((_, writer)) = open {
        writer.close().map_err(io_error)?;
    }
    Ok(files)
}

fn begin(file: File, rows: &Rows) -> io::Result<ArrowWriter<File>> {
    let properties = WriterProperties::builder()
        .set_compression(Compression::SNAPPY)
        .set_max_row_group_size(2 * BATCH)
        .build();
    ArrowWriter::try_new(file, rows.schema(), Some(properties)).map_err(io_error)
}

/// Returns the name of the file for an hour since 1970: of this machine, process and recording.
fn part(recording: &Recording, hour: u64) -> String {
    let (year, month, day) = date(hour / 24);
    let host: String = recording
        .host()
        .chars()
        .map(|c| if c.is_ascii_alphanumeric() || c == '-' { c } else { '_' })
        .collect();
    format!(
        "date={year:04}-{month:02}-{day:02}/hour={:02}/{host}-{}-{hour}-{:016x}.parquet",
        hour % 24,
        recording.process(),
        recording.number()
    )
}

fn io_error(error: ParquetError) -> io::Error {
    match error {
        ParquetError::External(error) => match error.downcast::<io::Error>() {
            Ok(error) => *error,
            Err(error) => io::Error::other(error),
        },
        error => io::Error::other(error),
    }
}
