//! A ring of byte records that never makes its writer wait: when it is full the oldest record goes, and is counted.
//!
//! Bytes in one allocation, not slots: a queue of inline lines would touch all its memory at creation. The writing end
//! may be used from any thread, because log records come from any thread.

use std::{
    collections::VecDeque,
    future::poll_fn,
    sync::{Arc, Mutex, PoisonError},
    task::{Poll, Waker},
};

/// Bytes before each record: its length.
const LENGTH_BYTES: usize = size_of::<u32>();

struct Ring {
    bytes: VecDeque<u8>,
    capacity: usize,
    dropped: u64,
    waiting: Option<Waker>,
}

/// The writing end.
#[derive(Clone)]
pub struct Writer {
    ring: Arc<Mutex<Ring>>,
}

/// The reading end.
pub struct Reader {
    ring: Arc<Mutex<Ring>>,
}

/// Makes a ring of `capacity` bytes, lengths included. Memory grows with use, up to that.
#[must_use]
pub fn lossy(capacity: usize) -> (Writer, Reader) {
    let ring = Arc::new(Mutex::new(Ring { bytes: VecDeque::new(), capacity, dropped: 0, waiting: None }));
    (Writer { ring: Arc::clone(&ring) }, Reader { ring })
}

impl Ring {
    fn drop_oldest(&mut self) {
        let mut length = [0; LENGTH_BYTES];
        for (byte, stored) in length.iter_mut().zip(self.bytes.drain(..LENGTH_BYTES)) {
            *byte = stored;
        }
        self.bytes.drain(..u32::from_le_bytes(length) as usize);
        self.dropped += 1;
    }
}

impl Writer {
    /// Adds one record, dropping the oldest ones as needed. A record larger than the whole ring is itself dropped.
    pub fn push(&self, record: &[u8]) {
        let waiting = {
            // A writer that panicked left whole records behind: the lock guards single statements.
            let mut ring = self.ring.lock().unwrap_or_else(PoisonError::into_inner);
            let needed = LENGTH_BYTES + record.len();
            let Ok(length) = u32::try_from(record.len()) else { return };
            if needed > ring.capacity {
                ring.dropped += 1;
                return;
            }
            while ring.bytes.len() + needed > ring.capacity {
                ring.drop_oldest();
            }
            ring.bytes.extend(length.to_le_bytes());
            ring.bytes.extend(record);
            ring.waiting.take()
        };
        if let Some(waker) = waiting {
            waker.wake();
        }
    }
}

impl Reader {
    /// The oldest record; waits while there is none. Cancel-safe.
    pub async fn next(&self) -> Vec<u8> {
        poll_fn(|context| {
            let mut ring = self.ring.lock().unwrap_or_else(PoisonError::into_inner);
            match ring.pop() {
                Some(record) => Poll::Ready(record),
                None => {
                    ring.waiting = Some(context.waker().clone());
                    Poll::Pending
                }
            }
        })
        .await
    }

    /// The oldest record, if there is one.
    #[must_use]
    pub fn try_next(&self) -> Option<Vec<u8>> {
        self.ring.lock().unwrap_or_else(PoisonError::into_inner).pop()
    }

    /// How many records were dropped since this was last asked.
    #[must_use]
    pub fn take_dropped(&self) -> u64 {
        std::mem::take(&mut self.ring.lock().unwrap_or_else(PoisonError::into_inner).dropped)
    }
}

impl Ring {
    fn pop(&mut self) -> Option<Vec<u8>> {
        if self.bytes.is_empty() {
            return None;
        }
        let mut length = [0; LENGTH_BYTES];
        for (byte, stored) in length.iter_mut().zip(self.bytes.drain(..LENGTH_BYTES)) {
            *byte = stored;
        }
        let record = self.bytes.drain(..u32::from_le_bytes(length) as usize).collect();
        if self.bytes.is_empty() {
            // A burst is over: its memory goes back.
            self.bytes = VecDeque::new();
        }
        Some(record)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_ring_loses_the_oldest_records_and_counts_them() {
        let (writer, reader) = lossy(3 * (LENGTH_BYTES + 4));
        for line in ["one.", "two.", "thre", "four", "five"] {
            writer.push(line.as_bytes());
        }
        assert_eq!(reader.take_dropped(), 2);
        assert_eq!(reader.try_next().as_deref(), Some(&b"thre"[..]));
        assert_eq!(reader.try_next().as_deref(), Some(&b"four"[..]));
        assert_eq!(reader.try_next().as_deref(), Some(&b"five"[..]));
        assert_eq!(reader.try_next(), None);
        assert_eq!(reader.take_dropped(), 0);
    }

    #[test]
    fn a_record_larger_than_the_ring_is_dropped_alone() {
        let (writer, reader) = lossy(16);
        writer.push(b"short");
        writer.push(&[0; 64]);
        assert_eq!(reader.take_dropped(), 1);
        assert_eq!(reader.try_next().as_deref(), Some(&b"short"[..]));
    }

    #[test]
    #[allow(clippy::disallowed_methods, reason = "log records come from any thread, and this proves it")]
    fn a_waiting_reader_is_woken_from_another_thread() {
        let (writer, reader) = lossy(64);
        let thread = std::thread::spawn(move || writer.push(b"hello"));
        assert_eq!(smol::block_on(reader.next()), b"hello");
        thread.join().expect("the writer only pushes");
    }
}
