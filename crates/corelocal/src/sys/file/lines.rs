//! Cuts a file into lines, without heap.

use super::File;

/// The most bytes that [`Lines`] reads of a file: a million lines of `/proc/self/maps` have 100 MiB.
const MOST_BYTES: usize = 256 << 20;

/// The longest line [`Lines`] hands out.
const LINE_BYTES: usize = 2048;

/// A file's lines, without their newlines. A line longer than 2048 bytes is left out whole: half a
/// line must not be taken for a line.
pub(crate) struct Lines {
    file: File,
    buffer: [u8; LINE_BYTES],
    /// The start of the buffer's unread part, and below it the end.
    start: usize,
    end: usize,
    at_end: bool,
    /// The number of bytes that may still be read.
    left: usize,
}

impl Lines {
    pub(crate) fn new(file: File) -> Lines {
        Lines { file, buffer: [0; LINE_BYTES], start: 0, end: 0, at_end: false, left: MOST_BYTES }
    }

    /// Returns the next line; a read error ends the file.
    pub(crate) fn next(&mut self) -> Option<&[u8]> {
        let mut overlong = false;
        loop {
            let unread = &self.buffer[self.start..self.end];
            if let Some(length) = unread.iter().position(|&byte| byte == b'\n') {
                let line = self.start..self.start + length;
                self.start = line.end + 1;
                if overlong {
                    overlong = false;
                    continue;
                }
                return Some(&self.buffer[line]);
            }
            if self.at_end {
                let line = self.start..self.end;
                self.start = self.end;
                return (!line.is_empty() && !overlong).then(|| &self.buffer[line]);
            }
            if self.start == 0 && self.end == LINE_BYTES {
                overlong = true;
                self.end = 0;
            }
            self.buffer.copy_within(self.start..self.end, 0);
            self.end -= self.start;
            self.start = 0;
            match self.file.read(&mut self.buffer[self.end..]) {
                Ok(read) if (1..=self.left).contains(&read) => {
                    self.left -= read;
                    self.end += read;
                }
                _ => self.at_end = true,
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sys::file::PathBuf;
    use std::string::{String, ToString};
    use std::vec::Vec;
    use std::{format, fs};

    fn lines_of(content: &str) -> Vec<String> {
        let file = tempfile::NamedTempFile::new().unwrap();
        fs::write(file.path(), content).unwrap();
        let path = file.path().to_str().unwrap();
        let file = File::open(&PathBuf::of_tree(path.as_bytes()).unwrap());
        let mut lines = Lines::new(file.unwrap());
        let mut all = Vec::new();
        while let Some(line) = lines.next() {
            all.push(String::from_utf8(line.to_vec()).unwrap());
        }
        all
    }

    #[test]
    fn lines_across_buffer_boundaries() {
        let content: Vec<String> = (0..500).map(|i| "x".repeat(i % 90) + &i.to_string()).collect();
        assert_eq!(lines_of(&(content.join("\n") + "\n")), content);
        assert_eq!(lines_of(&content.join("\n")), content);
        assert_eq!(lines_of("a\n\nb"), ["a", "", "b"]);
        assert!(lines_of("").is_empty());
    }

    #[test]
    fn overlong_lines_are_left_out() {
        let fits = "f".repeat(LINE_BYTES - 1);
        for long in [LINE_BYTES, LINE_BYTES + 1, 3 * LINE_BYTES, 3 * LINE_BYTES + 7] {
            let long = "l".repeat(long);
            assert_eq!(
                lines_of(&format!("{fits}\n{long}\nshort\n{long}\nz")),
                [fits.as_str(), "short", "z"]
            );
            assert_eq!(lines_of(&format!("a\n{long}")), ["a"]);
        }
    }
}
