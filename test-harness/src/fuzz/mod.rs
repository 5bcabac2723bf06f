//! Nonsense for everything that a stranger near the device or another program on it can reach, as fast as it can be made.
//!
//! One round has one seed: it makes requests as they should be, spoils them, and says what must hold whatever was said.
//! A round that fails is repeated by its seed.

mod ble;
mod http;
mod portal;
#[cfg(target_os = "linux")]
mod wire;

use board_sim::random::Random;

/// Bytes that mean something to somebody.
const LOUD: [&[u8]; 18] = [
    b"\r\n",
    b"\n",
    b"\r\n\r\n",
    b"\0",
    b"%",
    b"%00",
    b"&",
    b"=",
    b";",
    b"\"",
    b"<script>",
    b"--",
    b"Host: x\r\n",
    b"\xff",
    b"Content-Length: 9\r\n",
    b"Transfer-Encoding: chunked\r\n",
    b"0\r\n\r\n",
    b"ffffffff",
];

/// One round of everything.
///
/// # Errors
/// A story of what did not hold.
pub fn round(seed: u64) -> Result<(), String> {
    let random = Random::new(seed);
    http::round(&random).map_err(|story| format!("HTTP: {story}"))?;
    portal::round(&random).map_err(|story| format!("portal: {story}"))?;
    ble::round(&random).map_err(|story| format!("Bluetooth: {story}"))?;
    #[cfg(target_os = "linux")]
    wire::round(&random).map_err(|story| format!("message bus: {story}"))?;
    Ok(())
}

/// Some bytes of any kind, at most `longest`.
fn noise(random: &Random, longest: u64) -> Vec<u8> {
    (0..random.below(longest + 1)).map(|_| random.any().to_le_bytes()[0]).collect()
}

/// A place in `bytes`, or behind them.
fn place(random: &Random, bytes: &[u8]) -> usize {
    usize::try_from(random.below(bytes.len() as u64 + 1)).unwrap_or(0)
}

/// Changes a few places.
fn spoil(random: &Random, bytes: &mut Vec<u8>) {
    for _ in 0..=random.below(4) {
        let at = place(random, bytes);
        match random.below(6) {
            0 => bytes.truncate(at),
            1 if at < bytes.len() => bytes[at] ^= 1 << random.below(8),
            2 => drop(bytes.splice(at..at, random.pick(&LOUD).iter().copied())),
            3 => drop(bytes.splice(at..at, noise(random, 40))),
            4 => {
                let end = bytes.len().min(at + 1 + usize::try_from(random.below(40)).unwrap_or(0));
                drop(bytes.drain(at..end));
            }
            _ => {
                let again = bytes[at..].to_vec();
                bytes.extend(again);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    /// What the swarm does for a minute.
    #[test]
    fn a_moment_of_it() {
        for seed in 0..300 {
            if let Err(story) = super::round(seed) {
                panic!("seed {seed}: {story}");
            }
        }
    }
}
