//! Whether bytes that arrived are what was wanted: length, digest, and an executable of this machine's kind.
//!
//! Pure: the digest is taken elsewhere. That a release document is genuine was settled before anything was fetched. The
//! agent's own executable must also carry the note that says so ([`check_note`]): only an agent can watch its machine
//! server, and only this vendor's finds what this one has stored.

use board::files::Digest;

use super::{note::Note, target::Target};
use crate::kit::planted::{self, Bug};

/// Bytes from the beginning of a file that show what kind of executable it is.
pub const HEAD_BYTES: usize = 4096;

/// Why bytes are not used. They are removed and fetched afresh later: a login page or a flipped bit must not stand in
/// a good release's way for ever.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// More or fewer bytes than signed.
    #[error("it has {found} bytes and the signed release says {wanted}: something on the way sent other bytes")]
    Length {
        /// Bytes that arrived.
        found: u64,
        /// Bytes of the release.
        wanted: u64,
    },
    /// Other bytes than signed.
    #[error("its digest is not the one in the signed release: something on the way changed it")]
    Digest,
    /// Packed in a way that cannot be unpacked here, or that promises something else than is inside.
    #[error("it cannot be unpacked: {reason}")]
    Packed {
        /// Why, and what to do.
        reason: String,
    },
    /// Not an executable at all.
    #[error("it is no {expected} executable{}: check that the address leads to the program itself", hint(found))]
    NotExecutable {
        /// "ELF", "PE"
        expected: &'static str,
        /// What it looks like.
        found: &'static str,
    },
    /// An executable of another kind of machine.
    #[error("it is an executable for {found} and this machine is {platform}: choose the one for this platform")]
    OtherMachine {
        /// What it was built for.
        found: String,
        /// What this machine is.
        platform: String,
    },
    /// It runs here and is no agent, or one that is older than these notes.
    #[error("it is no {product} (no note in it says so): check that it is the agent that was released")]
    NoNote {
        /// What it should be.
        product: String,
    },
    /// Something else of ours, or of another vendor.
    #[error("it says it is {found} and not {product}: check that it is the agent that was released")]
    OtherProgram {
        /// What it says it is.
        found: String,
        /// What it should be.
        product: String,
    },
    /// Another version than the release that it came with.
    #[error("it says it is version {found} and was released as {wanted}: sign it under its own version")]
    OtherVersion {
        /// What it says it is.
        found: String,
        /// What the release says.
        wanted: String,
    },
    /// A platform whose executables this agent cannot tell from others.
    #[error("this agent does not know executables of {platform}")]
    UnknownPlatform {
        /// What this machine says it is.
        platform: String,
    },
}

fn hint(found: &str) -> String {
    if found.is_empty() { String::new() } else { format!(" but {found}") }
}

/// Judges what arrived, by its digest and its first [`HEAD_BYTES`].
pub fn check(target: &Target, digest: &Digest, head: &[u8], platform: &str) -> Result<(), Refusal> {
    if let Some(promise) = target.promise {
        if promise.length != digest.len {
            return Err(Refusal::Length { found: digest.len, wanted: promise.length });
        }
        if promise.sha256 != digest.sha256 && !planted::is(Bug::DigestUnchecked) {
            return Err(Refusal::Digest);
        }
    }
    executable_kind(head, platform)
}

/// Judges what an agent's executable says about itself. A pin may be of any version.
pub fn check_note(target: &Target, note: Option<&Note>, product: &str) -> Result<(), Refusal> {
    let Some(Note { program, version }) = note else { return Err(Refusal::NoNote { product: product.to_owned() }) };
    if program != product {
        return Err(Refusal::OtherProgram { found: shown(program), product: product.to_owned() });
    }
    if !target.is_pin() && *version != target.version {
        return Err(Refusal::OtherVersion { found: shown(version), wanted: target.version.clone() });
    }
    Ok(())
}

/// Words from a file that anybody may have written.
fn shown(text: &str) -> String {
    text.chars().map(|character| if character.is_control() { '?' } else { character }).collect()
}

/// One processor as executables name it.
struct Machine {
    name: &'static str,
    elf: u16,
    wide: bool,
    big_endian: bool,
    /// In PE headers; 0 where Windows does not run.
    pe: u16,
}

const fn machine(name: &'static str, elf: u16, wide: bool, big_endian: bool, pe: u16) -> Machine {
    Machine { name, elf, wide, big_endian, pe }
}

/// Processors by their names in platforms ("linux/arm64").
const MACHINES: [Machine; 12] = [
    machine("amd64", 62, true, false, 0x8664),
    machine("arm64", 183, true, false, 0xAA64),
    machine("arm", 40, false, false, 0x01C4),
    machine("386", 3, false, false, 0x014C),
    machine("riscv64", 243, true, false, 0),
    machine("loong64", 258, true, false, 0),
    machine("mips", 8, false, true, 0),
    machine("mipsle", 8, false, false, 0),
    machine("mips64", 8, true, true, 0),
    machine("mips64le", 8, true, false, 0),
    machine("ppc64le", 21, true, false, 0),
    machine("s390x", 22, true, true, 0),
];

/// Whether a file that begins like this can be run on `platform` ("linux/arm64", also with a variant: "linux/arm/v7").
pub fn executable_kind(head: &[u8], platform: &str) -> Result<(), Refusal> {
    let mut parts = platform.split('/');
    let (system, processor) = (parts.next().unwrap_or_default(), parts.next().unwrap_or_default());
    let Some(wanted) = MACHINES.iter().find(|machine| machine.name == processor) else {
        return Err(Refusal::UnknownPlatform { platform: platform.to_owned() });
    };
    let found = match system {
        "linux" => elf_machine(head).map(|found| {
            let Elf { machine, wide, big_endian } = found;
            let is = |known: &&Machine| (known.elf, known.wide, known.big_endian) == (machine, wide, big_endian);
            MACHINES
                .iter()
                .find(is)
                .map_or_else(|| format!("linux (machine {machine})"), |of| format!("linux/{}", of.name))
        }),
        "windows" => pe_machine(head).map(|found| {
            let is = |known: &&Machine| known.pe == found && found != 0;
            let of = MACHINES.iter().find(is);
            of.map_or_else(|| format!("windows (machine {found:#06x})"), |of| format!("windows/{}", of.name))
        }),
        _ => return Err(Refusal::UnknownPlatform { platform: platform.to_owned() }),
    };
    match found {
        Some(found) if found == format!("{system}/{}", wanted.name) => Ok(()),
        Some(found) => Err(Refusal::OtherMachine { found, platform: platform.to_owned() }),
        None => Err(Refusal::NotExecutable {
            expected: if system == "linux" { "ELF" } else { "PE" },
            found: looks_like(head),
        }),
    }
}

struct Elf {
    machine: u16,
    wide: bool,
    big_endian: bool,
}

/// The machine of an ELF file that is a program; libraries without an entry, object files and core dumps are none.
fn elf_machine(head: &[u8]) -> Option<Elf> {
    let [0x7F, b'E', b'L', b'F', class @ 1..=2, order @ 1..=2, 1, ..] = head else { return None };
    let number = |at: usize| {
        let bytes = head.get(at..)?.first_chunk().copied()?;
        Some(if *order == 2 { u16::from_be_bytes(bytes) } else { u16::from_le_bytes(bytes) })
    };
    // ET_EXEC, or ET_DYN as position-independent programs have it.
    matches!(number(16)?, 2 | 3).then_some(())?;
    Some(Elf { machine: number(18)?, wide: *class == 2, big_endian: *order == 2 })
}

fn pe_machine(head: &[u8]) -> Option<u16> {
    head.starts_with(b"MZ").then_some(())?;
    let header = usize::try_from(u32::from_le_bytes(*head.get(0x3C..)?.first_chunk()?)).ok()?;
    let [b'P', b'E', 0, 0, low, high] = *head.get(header..)?.first_chunk::<6>()? else { return None };
    Some(u16::from_le_bytes([low, high]))
}

/// Whether a file that begins like this is an xz stream.
#[must_use]
pub fn is_xz(head: &[u8]) -> bool {
    head.starts_with(&[0xFD, b'7', b'z', b'X', b'Z', 0])
}

/// What people put at the wrong address most often.
fn looks_like(head: &[u8]) -> &'static str {
    let text = head.trim_ascii_start();
    let starts = |with: &[u8]| text.get(..with.len()).is_some_and(|start| start.eq_ignore_ascii_case(with));
    match () {
        () if starts(b"<!doctype") || starts(b"<html") => "a web page",
        () if starts(b"#!") => "a script",
        () if starts(b"{") || starts(b"[") => "a JSON document",
        () if head.starts_with(&[0x1F, 0x8B]) => "a gzip archive",
        () if is_xz(head) => "an xz archive",
        () if head.starts_with(b"PK\x03\x04") => "a zip archive",
        () if head.starts_with(b"MZ") => "a Windows program",
        () if head.starts_with(&[0x7F, b'E', b'L', b'F']) => "an ELF file",
        () if head.starts_with(&[0xCF, 0xFA, 0xED, 0xFE]) => "a macOS program",
        () if head.is_empty() => "an empty file",
        () => "",
    }
}
