//! Who is answered before it has said everything hears the answer, and goes on.

use tokio::{
    io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader},
    net::TcpStream,
    time::timeout,
};

use crate::world::{PATIENCE, World};

const UPDATE: &str = "/viam.app.v1.AppService/UpdateRobotPart";

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

    async fn line(&mut self) -> String {
        let mut line = String::new();
        timeout(PATIENCE, self.0.read_line(&mut line)).await.expect("an answer").expect("it is not cut off");
        line.trim_end().to_lowercase()
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
        self.0.read_exact(&mut vec![0; length]).await.expect("all of it");
        while chunked {
            let size = usize::from_str_radix(&self.line().await, 16).expect("a chunk");
            self.0.read_exact(&mut vec![0; size]).await.expect("all of it");
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
async fn who_has_too_much_to_say_or_asks_first_is_told_that_this_is_the_end() {
    let world = World::new().await;
    let mut line = Line::open(&world).await;
    line.begin(UPDATE, "application/json", 64 << 20, "").await;
    assert_eq!(line.answer().await, (401, true));
    let mut line = Line::open(&world).await;
    line.begin(UPDATE, "application/json", 100, "Expect: 100-continue\r\n").await;
    assert_eq!(line.answer().await, (401, true), "and not 100");
    // What is wanted is asked for.
    let mut line = Line::open(&world).await;
    let head = "POST /proto.rpc.v1.AuthService/Authenticate HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n";
    line.say(format!("{head}Content-Length: 2\r\nExpect: 100-continue\r\n\r\n")).await;
    assert_eq!(line.answer().await, (100, false));
    line.say("{}").await;
    assert_eq!(line.answer().await, (400, false));
    world.end().await;
}
