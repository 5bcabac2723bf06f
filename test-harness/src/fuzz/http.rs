//! Requests on a connection. What is heard may not depend on how it was cut into pieces, and what was well said is heard.

use board::doorway::BODY_BYTES_MAX;
use board_portable::doorway::{Heard, Reader};
use board_sim::random::Random;

use super::{noise, spoil};

/// Everything that a connection understands of what is said, and whether it refused the rest.
fn heard(said: &[u8], mut piece: impl FnMut() -> usize) -> (Vec<Heard>, bool) {
    let (mut reader, mut requests, mut rest) = (Reader::default(), Vec::new(), said);
    loop {
        match reader.request() {
            Ok(Some(request)) => requests.push(request),
            Ok(None) if rest.is_empty() => return (requests, false),
            Ok(None) => {
                let (now, later) = rest.split_at(piece().clamp(1, rest.len()));
                reader.hear(now);
                rest = later;
            }
            Err(_) => return (requests, true),
        }
    }
}

/// A request as it should be, and its body.
fn good(random: &Random) -> (Vec<u8>, Vec<u8>) {
    let body = noise(random, if random.chance(5) { BODY_BYTES_MAX as u64 } else { 60 });
    let mut said =
        format!("POST /{} HTTP/1.1\r\nHost: 10.42.0.1\r\nx-{}: y\r\n", random.any(), random.any()).into_bytes();
    if random.chance(50) {
        said.extend(format!("Content-Length: {}\r\n\r\n", body.len()).bytes());
        said.extend(&body);
        return (said, body);
    }
    said.extend(b"Transfer-Encoding: chunked\r\n\r\n");
    let mut rest = &body[..];
    while !rest.is_empty() {
        let length = 1 + usize::try_from(random.below(rest.len() as u64)).unwrap_or(0);
        let (now, later) = rest.split_at(length);
        said.extend(format!("{length:x};a=b\r\n").bytes());
        said.extend(now);
        said.extend(b"\r\n");
        rest = later;
    }
    said.extend(b"0\r\nx: y\r\n\r\n");
    (said, body)
}

pub(super) fn round(random: &Random) -> Result<(), String> {
    let requests: Vec<_> = (0..=random.below(3)).map(|_| good(random)).collect();
    let mut said: Vec<u8> = requests.iter().flat_map(|(said, _)| said.clone()).collect();
    let spoilt = random.chance(80);
    if spoilt {
        spoil(random, &mut said);
    }
    let shown = || String::from_utf8_lossy(&said[..said.len().min(2000)]).into_owned();
    let (whole, refused) = heard(&said, || said.len());
    let longest = 1 + random.below(if random.chance(50) { 4 } else { 3000 });
    let (cut, cut_refused) = heard(&said, || usize::try_from(random.below(longest)).unwrap_or(1));
    let alike = |(a, b): (&Heard, &Heard)| {
        (&a.method, &a.target, &a.headers, &a.body, a.keep) == (&b.method, &b.target, &b.headers, &b.body, b.keep)
    };
    if (whole.len(), refused) != (cut.len(), cut_refused) || !whole.iter().zip(&cut).all(alike) {
        return Err(format!(
            "{} whole, {} in pieces, refused {refused} {cut_refused}: {}",
            whole.len(),
            cut.len(),
            shown()
        ));
    }
    if whole.iter().any(|request| request.body.len() > BODY_BYTES_MAX) {
        return Err(format!("a body beyond the limit: {}", shown()));
    }
    let as_said =
        whole.len() == requests.len() && whole.iter().zip(&requests).all(|(heard, (_, body))| heard.body == *body);
    if !spoilt && (refused || !as_said) {
        return Err(format!("not heard as it was said: {}", shown()));
    }
    Ok(())
}
