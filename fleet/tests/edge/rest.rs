//! Who is answered before it has said everything hears the answer, and goes on.

use std::time::{Duration, Instant};

use tokio::{
    io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader},
    net::TcpStream,
    time::timeout,
};

use super::world::{PATIENCE, World};

const UPDATE: &str = "/viam.app.v1.AppService/UpdateRobotPart";
const SIGN_IN: &str = "/proto.rpc.v1.AuthService/Authenticate";

struct Line(BufReader<TcpStream>);

impl Line {
    async fn open(world: &World) -> Self {
        Self(BufReader::new(TcpStream::connect(world.server.address).await.unwrap()))
    }

    async fn say(&mut self, words: impl AsRef<[u8]>) {
        timeout(PATIENCE, self.0.write_all(words.as_ref())).await.expect("it is taken").expect("somebody listens");
    }

    /// The head of a POST with a body of that length, which is still to be said.
    async fn begin(&mut self, path: &str, kind: &str, length: usize, more: &str) {
        let head = format!("POST {path} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer x\r\nContent-Type: {kind}\r\n");
        self.say(format!("{head}Content-Length: {length}\r\n{more}\r\n")).await;
    }

    /// The same, in chunks.
    async fn chunks(&mut self, path: &str) {
        let head =
            format!("POST {path} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer x\r\nContent-Type: application/json\r\n");
        self.say(format!("{head}Transfer-Encoding: chunked\r\n\r\n")).await;
    }

    async fn line(&mut self) -> String {
        let mut line = String::new();
        timeout(PATIENCE, self.0.read_line(&mut line)).await.expect("an answer").expect("it is not cut off");
        line.trim_end().to_lowercase()
    }

    async fn read(&mut self, length: usize) {
        timeout(PATIENCE, self.0.read_exact(&mut vec![0; length])).await.expect("an answer").expect("all of it");
    }

    /// Its status, and whether the connection ends with it.
    async fn answer(&mut self) -> (u16, bool) {
        let status = self.line().await.split(' ').nth(1).expect("a status").parse().unwrap();
        let (mut closes, mut length, mut chunked) = (false, 0, false);
        loop {
            let line = self.line().await;
            match line.split_once(": ") {
                Some(("connection", said)) => closes = said == "close",
                Some(("content-length", said)) => length = said.parse().unwrap(),
                Some(("transfer-encoding", _)) => chunked = true,
                Some(_) => {}
                None => break,
            }
        }
        self.read(length).await;
        while chunked {
            let size = usize::from_str_radix(&self.line().await, 16).expect("a chunk");
            self.read(size).await;
            self.line().await;
            chunked = size > 0;
        }
        (status, closes)
    }
}

#[tokio::test]
async fn who_is_refused_while_it_speaks_hears_it_and_goes_on() {
    let world = World::new().await;
    for (path, kind, status) in [
        (UPDATE, "application/json", 401),
        (UPDATE, "application/grpc-web+proto", 200),
        (UPDATE, "text/plain", 415),
        ("/healthz", "text/plain", 405),
        ("/nowhere", "text/plain", 404),
        ("/packages/v1/acme/camera/1.0.0/any", "text/plain", 405),
    ] {
        let mut line = Line::open(&world).await;
        for length in [2, 100, 3 << 20, 5 << 20, 2] {
            line.begin(path, kind, length, "").await;
            line.say(vec![b'x'; length]).await;
            assert_eq!(line.answer().await, (status, false), "{length} to {path} as {kind}");
        }
    }
    world.end().await;
}

#[tokio::test]
async fn a_message_in_chunks_is_heard_out_too() {
    let world = World::new().await;
    let mut line = Line::open(&world).await;
    for _ in 0..2 {
        line.chunks(UPDATE).await;
        for _ in 0..48 {
            line.say([&b"10000\r\n"[..], &vec![b'x'; 64 << 10], b"\r\n"].concat()).await;
        }
        line.say("0\r\n\r\n").await;
        assert_eq!(line.answer().await, (401, false));
    }
    // What is no chunk ends the connection, and the answer says so: where nobody reads it, and where somebody does.
    line.chunks(UPDATE).await;
    line.say("no number\r\n").await;
    assert_eq!(line.answer().await, (401, true));
    let mut line = Line::open(&world).await;
    line.chunks(SIGN_IN).await;
    line.say("no number\r\n").await;
    assert_eq!(line.answer().await, (400, true));
    world.end().await;
}

#[tokio::test]
async fn where_it_is_not_waited_for_the_answer_says_that_this_is_the_end() {
    let world = World::new().await;
    let mut line = Line::open(&world).await;
    line.begin(UPDATE, "application/json", 64 << 20, "").await;
    assert_eq!(line.answer().await, (401, true), "too much");
    let mut line = Line::open(&world).await;
    for (length, ends) in [("", false), ("Content-Length: 0\r\n", false), ("Content-Length: 2\r\n", true)] {
        line.say(format!("GET /healthz HTTP/1.1\r\nHost: x\r\n{length}\r\n")).await;
        assert_eq!(line.answer().await, (200, ends), "of no use: {length}");
    }
    let mut line = Line::open(&world).await;
    line.begin(UPDATE, "application/grpc-web+proto", 2, "Grpc-Timeout: 10m\r\n").await;
    assert_eq!(line.answer().await, (200, true), "the caller has no more time");
    let mut line = Line::open(&world).await;
    line.begin(UPDATE, "application/json", 2, "Connect-Timeout-Ms: 10\r\n").await;
    assert_eq!(line.answer().await, (401, true), "the caller has no more time");
    loop {
        let begun = Instant::now();
        let mut line = Line::open(&world).await;
        line.begin(UPDATE, "application/json", 2, "Expect: 100-continue\r\n").await;
        let answer = line.answer().await;
        // After half a second it is asked for after all, because the client sends it without.
        if begun.elapsed() < Duration::from_millis(500) {
            assert_eq!(answer, (401, true), "and not 100");
            break;
        }
    }
    // What is wanted is asked for.
    let mut line = Line::open(&world).await;
    line.begin(SIGN_IN, "application/json", 2, "Expect: 100-continue\r\n").await;
    assert_eq!(line.answer().await, (100, false));
    line.say("{}").await;
    assert_eq!(line.answer().await, (400, false));
    // Who stops does not wait for what nobody needs.
    let before = refused(&world);
    let mut line = Line::open(&world).await;
    line.begin(UPDATE, "application/json", 2, "").await;
    let counted = async {
        while refused(&world) == before {
            tokio::task::yield_now().await;
        }
    };
    timeout(PATIENCE, counted).await.expect("it is refused");
    let (answer, ()) = tokio::join!(line.answer(), world.end());
    assert_eq!(answer, (401, true));
}

/// Calls of strangers that were refused.
fn refused(world: &World) -> u64 {
    let context = &world.server.context;
    let page = context.metrics.text(&context.store, &context.throttle);
    let counts = page.lines().filter(|line| line.contains("/UpdateRobotPart\",code=\"16\""));
    counts.filter_map(|line| line.rsplit(' ').next()?.parse::<u64>().ok()).sum()
}
