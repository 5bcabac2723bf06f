//! A bus that speaks strangely: in single bytes, in the other order of bytes, too much, nonsense, not to the end.

use std::{
    io::{Read as _, Write as _},
    os::unix::net::{UnixListener, UnixStream},
    thread,
};

use super::with_board;
use board_linux::dbus::{BODY_MAX, Error, Kind, Value};

/// One message by hand: fields of header as code, type and value.
fn message(big: bool, kind: u8, fields: &[(u8, char, &str)], reply_to: u32, body: &[u8]) -> Vec<u8> {
    let number = |number: usize| {
        let number = u32::try_from(number).expect("small");
        if big { number.to_be_bytes() } else { number.to_le_bytes() }
    };
    let pad = |bytes: &mut Vec<u8>, to: usize| bytes.resize(bytes.len().next_multiple_of(to), 0);
    let mut list = Vec::new();
    for (code, kind, value) in fields {
        pad(&mut list, 8);
        list.extend([*code, 1, u8::try_from(*kind).expect("a letter"), 0]);
        match kind {
            'g' => list.push(u8::try_from(value.len()).expect("short")),
            _ => list.extend(number(value.len())),
        }
        list.extend(value.as_bytes());
        list.push(0);
    }
    pad(&mut list, 8);
    list.extend([5, 1, b'u', 0]);
    list.extend(number(usize::try_from(reply_to).expect("small")));
    let mut bytes = vec![if big { b'B' } else { b'l' }, kind, 1, 1];
    for part in [body.len(), 7, list.len()] {
        bytes.extend(number(part));
    }
    bytes.extend(list);
    pad(&mut bytes, 8);
    bytes.extend(body);
    bytes
}

const DAEMON: (u8, char, &str) = (7, 's', "org.freedesktop.DBus");

fn answer(big: bool, reply_to: u32, text: &str) -> Vec<u8> {
    let length = u32::try_from(text.len()).expect("short");
    let length = if big { length.to_be_bytes() } else { length.to_le_bytes() };
    message(big, 2, &[DAEMON, (8, 'g', "s")], reply_to, &[&length, text.as_bytes(), &[0]].concat())
}

/// Reads one call; its number.
fn call(stream: &mut UnixStream) -> u32 {
    let mut head = [0; 16];
    stream.read_exact(&mut head).expect("a call");
    let number = |at: usize| u32::from_le_bytes(*head[at..].first_chunk().expect("four bytes"));
    let rest = (number(12) as usize).next_multiple_of(8) + number(4) as usize;
    stream.read_exact(&mut vec![0; rest]).expect("a whole call");
    number(8)
}

/// Lets a client in up to its Hello.
fn welcome(listener: &UnixListener) -> UnixStream {
    let (mut stream, _) = listener.accept().expect("a client");
    let mut line = Vec::new();
    while !line.ends_with(b"\r\n") {
        let mut byte = [0];
        stream.read_exact(&mut byte).expect("a greeting");
        line.extend(byte);
    }
    assert!(line.starts_with(b"\0AUTH EXTERNAL "), "{line:?}");
    stream.write_all(b"OK 00\r\n").expect("a client that listens");
    stream.read_exact(&mut [0; 7]).expect("BEGIN");
    stream
}

fn with_stranger<F: Future<Output = ()>>(
    stranger: impl FnOnce(UnixListener) + Send + 'static,
    test: impl FnOnce(super::Board) -> F,
) {
    with_board(|board, folder| {
        let listener = UnixListener::bind(folder.join("socket")).expect("a folder of ours");
        let stranger = thread::spawn(move || stranger(listener));
        let test = test(board);
        async move {
            test.await;
            stranger.join().expect("a stranger that ends");
        }
    });
}

async fn ask(connection: &board_linux::dbus::Connection) -> Result<String, Error> {
    let answer = connection.call("org.example", "/a", "org.example.Things", "Ask", vec![Value::from(1_u32)]).await?;
    assert_eq!(answer.kind, Kind::Answer);
    Ok(answer.first().and_then(Value::text).expect("a text").to_owned())
}

#[test]
fn whoever_speaks_strangely_is_understood_and_whoever_says_too_much_is_passed_over() {
    let stranger = |listener: UnixListener| {
        let mut stream = welcome(&listener);
        let hello = call(&mut stream);
        // Byte by byte.
        for byte in answer(false, hello, ":1.9") {
            stream.write_all(&[byte]).expect("a client that listens");
        }
        let first = call(&mut stream);
        stream.write_all(&answer(true, first, "the other order")).expect("a client that listens");
        let second = call(&mut stream);
        // More than is read, which is nobody's; a kind that nobody knows; then the answer, all in one.
        let signal = [DAEMON, (1, 'o', "/a"), (2, 's', "org.example.X"), (3, 's', "Noise"), (8, 'g', "ay")];
        let length = u32::try_from(2 * BODY_MAX).expect("small").to_le_bytes();
        let noise = message(false, 4, &signal, 1, &[&length[..], &vec![7; 2 * BODY_MAX]].concat());
        let unknown = message(false, 77, &[DAEMON], 1, &[]);
        stream.write_all(&[noise, unknown, answer(false, second, "still here")].concat()).expect("it is taken");
        // An answer that is too long is an error of this call alone.
        let third = call(&mut stream);
        let body = [&length[..], &vec![7; 2 * BODY_MAX]].concat();
        stream.write_all(&message(false, 2, &[DAEMON, (8, 'g', "ay")], third, &body)).expect("it is taken");
        let fourth = call(&mut stream);
        let error = [DAEMON, (4, 's', "org.example.No")];
        stream.write_all(&message(false, 3, &error, fourth, &[])).expect("a client that listens");
    };
    with_stranger(stranger, |board| async move {
        let connection = board.bus.connection().await.expect("let in");
        assert_eq!(ask(&connection).await.expect("an answer"), "the other order");
        assert_eq!(ask(&connection).await.expect("an answer"), "still here");
        assert!(matches!(ask(&connection).await, Err(Error::Nonsense(_))));
        assert!(!connection.is_closed());
        let refused = ask(&connection).await.expect_err("an error");
        assert_eq!((refused.name(), refused.to_string().as_str()), (Some("org.example.No"), "org.example.No"));
    });
}

/// Calls end when the connection does, and not 25 seconds later.
#[test]
fn whoever_hangs_up_or_talks_nonsense_is_left_at_once() {
    let ends: [fn(UnixStream, u32); 4] = [
        |_, _| {},
        |mut stream, to| drop(stream.write_all(&answer(false, to, "half")[..20])),
        |mut stream, _| drop(stream.write_all(b"HTTP/1.1 400 Bad Request\r\n\r\n")),
        |mut stream, _| drop(stream.write_all(&[b"l\x02\x01\x01\x01\0\0\0\x01\0\0\0".as_slice(), &[0xff; 4]].concat())),
    ];
    for (case, end) in ends.into_iter().enumerate() {
        let stranger = move |listener: UnixListener| {
            let mut stream = welcome(&listener);
            let hello = call(&mut stream);
            stream.write_all(&answer(false, hello, ":1.9")).expect("a client that listens");
            let asked = call(&mut stream);
            end(stream, asked);
        };
        with_stranger(stranger, |board| async move {
            let connection = board.bus.connection().await.expect("let in");
            let ended = ask(&connection).await;
            assert!(matches!(ended, Err(Error::Closed)), "{case}: {ended:?}");
            assert!(connection.is_closed(), "{case}");
            assert!(matches!(ask(&connection).await, Err(Error::Closed)), "{case}: and stays ended");
        });
    }
}

#[test]
fn who_is_not_let_in_says_why() {
    let stranger = |listener: UnixListener| {
        let (mut stream, _) = listener.accept().expect("a client");
        stream.write_all(b"REJECTED ANONYMOUS\r\n").expect("a client that listens");
        let _ = stream.read(&mut [0; 64]);
    };
    with_stranger(stranger, |board| async move {
        let Err(refused) = board.bus.connection().await else { panic!("it is let in") };
        assert!(refused.to_string().contains("REJECTED ANONYMOUS"), "{refused}");
    });
}
