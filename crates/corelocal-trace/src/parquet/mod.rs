//! Parquet: tables of events, for DuckDB, Spark and others.
//!
//! One row is an event, or the begin or the end of a span. Times are nanoseconds in 64-bit integers. A field has a column of
//! its name and type; fields of the same name and type share it, and another type has a column `NAME/TYPE`. `trace_id`,
//! `span_id` and `parent_id` are hexadecimal digits, as in W3C's trace context, so tables of several processes and machines
//! can be joined by them. An end has `duration_ns`.
//!
//! # Invariants
//! 1. The memory in use is that of a group of rows, and does not grow with the number of events.
//! 2. With partitions, a file has the events of one hour (UTC): `date=2026-11-26/hour=09/…`.

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
use crate::identities::Identities;
use crate::{Event, Recording, date};

/// Rows that are written at once.
const BATCH: usize = 1 << 16;
const HOUR: u64 = 3600 * 1_000_000_000;

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
    let mut identities = Identities::new(recording);
    let mut files = Vec::new();
    let mut open: Option<(u64, ArrowWriter<File>)> = None;
    let flush = |rows: &mut Rows, open: &mut Option<(u64, ArrowWriter<File>)>| {
        let Some((_, writer)) = open else { return Ok(()) };
        writer.write(&rows.take().map_err(io::Error::other)?).map_err(io_error)
    };
    if !is_partitioned {
        files.push(to.to_owned());
        open = Some((0, begin(to, &rows)?));
    }
    for event in events {
        let hour = if is_partitioned { event.time / HOUR } else { 0 };
        if open.as_ref().is_none_or(|(of, _)| *of != hour) {
            flush(&mut rows, &mut open)?;
            if let Some((_, writer)) = open.take() {
                writer.close().map_err(io_error)?;
            }
            let path = to.join(part(recording, hour));
            fs::create_dir_all(path.parent().unwrap_or(to))?;
            open = Some((hour, begin(&path, &rows)?));
            files.push(path);
        }
        let identity = identities.of(&event);
        rows.push(&event, &identity);
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

fn begin(path: &Path, rows: &Rows) -> io::Result<ArrowWriter<File>> {
    let properties = WriterProperties::builder()
        .set_compression(Compression::SNAPPY)
        .set_max_row_group_size(2 * BATCH)
        .build();
    ArrowWriter::try_new(File::create(path)?, rows.schema(), Some(properties)).map_err(io_error)
}

/// The name of the file for an hour since 1970: of this machine and process.
fn part(recording: &Recording, hour: u64) -> String {
    let (year, month, day) = date(hour / 24);
    let host: String = recording
        .host()
        .chars()
        .map(|c| if c.is_ascii_alphanumeric() || c == '-' { c } else { '_' })
        .collect();
    format!(
        "date={year:04}-{month:02}-{day:02}/hour={:02}/{host}-{}-{hour}.parquet",
        hour % 24,
        recording.process()
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
