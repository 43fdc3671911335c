//! Where the sites and the buffers of a recording are.

use super::*;

impl Recording {
    pub(super) fn find_sites(&mut self) -> Result<(), OpenError> {
        let count = self.word(header::SITES);
        if count > MOST_SITES as u64 {
            self.problem(header::SITES as u64, "more sites than a recording has");
        }
        let count = count.min(MOST_SITES as u64) as usize;
        let mut described = vec![0; count * SITE_LEN];
        let len = self.bytes.read(HEADER_LEN as u64, &mut described).map_err(OpenError::Io)?;
        for (number, bytes) in described.chunks_exact(SITE_LEN).enumerate() {
            let end = (number + 1) * SITE_LEN;
            let site = if end <= len { site(bytes) } else { None };
            // Of two threads that register a site at once, one draws a number that is never used. If it is used, that is
            // found at its records.
            let is_unused = end <= len && bytes.iter().all(|byte| *byte == 0);
            if site.is_none() && !is_unused {
                let at = (HEADER_LEN + number * SITE_LEN) as u64;
                self.problem(at, "a site without a description");
            }
            self.sites.push(site);
        }
        Ok(())
    }

    /// Finds the buffers. Returns all readings of the clocks.
    pub(super) fn find_buffers(&mut self) -> Result<Vec<(u64, u64)>, OpenError> {
        let reading = |bytes: &[u8], at: usize| (word(bytes, at), word(bytes, at + 8));
        let mut readings =
            vec![reading(&*self.header, header::START), reading(&*self.header, header::END)];
        let packed = self.word(header::PACKED);
        let count = self.word(header::BUFFERS);
        if count > MOST_BUFFERS {
            self.problem(header::BUFFERS as u64, "more buffers than a recording has");
        }
        let count = if packed == STREAM { MOST_BUFFERS } else { count.min(MOST_BUFFERS) };
        let mut at = self.word(header::BUFFERS_AT);
        // The buffer with each ticket: a later one has all of an earlier one.
        let mut tickets: HashMap<u64, usize> = HashMap::new();
        for _ in 0..count {
            let mut head = [0; BUFFER_HEADER_LEN];
            let len = self.bytes.read(at, &mut head).map_err(OpenError::Io)?;
            if len == 0 && packed == STREAM {
                // Behind the last buffer, or in the room that it has left.
                break;
            }
            if len < head.len() {
                self.problem(at, "the file ends before its last buffer");
                break;
            }
            let [used, ticket] = [buffer::USED, buffer::TICKET].map(|at| word(&head, at));
            let is_valid =
                (BUFFER_HEADER_LEN as u64..=BUFFER_LEN as u64).contains(&used) && used % 8 == 0;
            let is_empty = used == 0 || ticket == 0;
            if packed != 0 && !is_valid {
                self.problem(at, "a buffer without a length: the ones behind it are not found");
                break;
            }
            if is_valid && !is_empty {
                let found = Buffer {
                    at: at.saturating_add(BUFFER_HEADER_LEN as u64),
                    len: used as usize - BUFFER_HEADER_LEN,
                    begin: word(&head, buffer::BEGIN),
                };
                readings.push(reading(&head, buffer::BEGIN));
                let next = self.buffers.len();
                match tickets.insert(ticket, next).filter(|_| packed == STREAM) {
                    Some(earlier) if self.buffers[earlier].len <= found.len => {
                        self.buffers[earlier] = found;
                        tickets.insert(ticket, earlier);
                    }
                    _ => self.buffers.push(found),
                }
            } else if !is_empty {
                self.problem(at, "a buffer with a wrong length");
            }
            let room = match packed {
                0 => BUFFER_LEN as u64,
                // A buffer that was not full when it was written first.
                _ if word(&head, buffer::ROOM) == BUFFER_LEN as u64 => BUFFER_LEN as u64,
                _ => used,
            };
            at = at.saturating_add(room);
        }
        let len = self.word(header::LEN);
        let has_end = packed == STREAM && len > 0;
        if has_end && self.bytes.read(len - 1, &mut [0]).map_err(OpenError::Io)? == 0 {
            self.problem(len, "the file was longer when it was written: its end is missing");
        }
        Ok(readings)
    }
}
