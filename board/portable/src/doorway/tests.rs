//! Visitors who are in a hurry, asleep, rude or many. Sockets are real; time is moved by hand.

use std::{borrow::Cow, net::Ipv4Addr};

use board::doorway::{BODY_BYTES_MAX, HEAD_BYTES_MAX, IDLE_MAX, READING_TAKES_MAX, REQUEST_TAKES_MAX};
use board_sim::{SimBoard, clock::SimClock};
use smol::{
    future,
    io::{AsyncReadExt as _, AsyncWriteExt as _},
};

use super::*;

type Stream = Async<TcpStream>;

struct House {
    executor: Rc<LocalExecutor<'static>>,
    clock: SimClock,
    port: Rc<dyn Clock>,
}

impl House {
    fn new() -> House {
        let sim = SimBoard::new(0);
        House { executor: Rc::default(), port: sim.switch_on().clock, clock: sim.clock }
    }

    fn run<T>(&self, work: impl Future<Output = T>) -> T {
        smol::block_on(self.executor.run(work))
    }

    async fn open(&self) -> Rc<dyn Open> {
        let doorway = PortableDoorway::new(&self.executor, Rc::clone(&self.port));
        doorway.open(SocketAddrV4::new(Ipv4Addr::LOCALHOST, 0)).await.unwrap()
    }

    /// A listener that answers everything with what it was asked.
    async fn echo(&self) -> Rc<dyn Open> {
        let open = self.open().await;
        let knocks = Rc::clone(&open);
        let executor = Rc::clone(&self.executor);
        let answers = async move {
            loop {
                let knock = knocks.next().await;
                executor.spawn(answer(knock, 200)).detach();
            }
        };
        self.executor.spawn(answers).detach();
        open
    }

    /// Moves time on by exactly the one limit that is running.
    async fn pass(&self, limit: Duration) {
        while self.clock.next_change() != Some(limit) {
            future::yield_now().await;
        }
        self.clock.advance(limit);
    }
}

async fn answer(knock: Box<dyn Knock>, status: u16) {
    let request = knock.request();
    let body = format!("{} {} {}", request.method, request.target, String::from_utf8_lossy(&request.body));
    knock.answer(Response { status, headers: Vec::new(), body: Cow::Owned(body.into_bytes()) }).await;
}

async fn call(address: SocketAddrV4) -> Stream {
    Async::<TcpStream>::connect(SocketAddr::V4(address)).await.unwrap()
}

/// The same as another phone: its address ends in this number.
async fn call_as(phone: usize, address: SocketAddrV4) -> Stream {
    let socket = rustix::net::socket(rustix::net::AddressFamily::INET, rustix::net::SocketType::STREAM, None).unwrap();
    let phone = Ipv4Addr::new(127, 0, 1, u8::try_from(phone).unwrap());
    rustix::net::bind(&socket, &SocketAddrV4::new(phone, 0)).unwrap();
    // On loopback it is there at once.
    rustix::net::connect(&socket, &address).unwrap();
    Async::new(TcpStream::from(socket)).unwrap()
}

/// Everything until the other side closes.
async fn rest(stream: &mut Stream) -> String {
    let mut bytes = Vec::new();
    let _ = stream.read_to_end(&mut bytes).await;
    String::from_utf8(bytes).unwrap()
}

/// One answer with a length.
async fn one(stream: &mut Stream) -> String {
    let mut said = Vec::new();
    loop {
        let text = String::from_utf8_lossy(&said).into_owned();
        if let Some((head, body)) = text.split_once("\r\n\r\n")
            && head
                .split("Content-Length: ")
                .nth(1)
                .is_some_and(|length| length.lines().next().and_then(|length| length.parse().ok()) == Some(body.len()))
        {
            return text;
        }
        let mut more = [0; 1024];
        let read = stream.read(&mut more).await.unwrap();
        assert_ne!(read, 0, "the answer was cut: {text}");
        said.extend_from_slice(&more[..read]);
    }
}

/// Says it all and nothing more, and reads until the end.
async fn say(address: SocketAddrV4, words: &[u8]) -> String {
    say_over(call(address).await, words).await
}

async fn say_over(mut stream: Stream, words: &[u8]) -> String {
    // Who is refused early may be let go before everything was said.
    let _ = stream.write_all(words).await;
    let _ = stream.get_ref().shutdown(std::net::Shutdown::Write);
    rest(&mut stream).await
}

const GET: &[u8] = b"GET /a?b HTTP/1.1\r\nHost: x\r\n\r\n";

#[test]
fn what_is_said_and_what_comes_back() {
    let post = |headers: &str, body: &str| format!("POST /p HTTP/1.1\r\nHost: x\r\n{headers}\r\n{body}").into_bytes();
    let many = |count: usize| "a: b\r\n".repeat(count);
    let table: Vec<(&str, Vec<u8>, &str, &str)> = vec![
        // case                     said            status   body (after the head)
        ("a page", GET.into(), "200", "GET /a?b "),
        ("line feeds", b"GET / HTTP/1.1\nHost: x\n\n".into(), "200", "GET / "),
        ("an empty line first", b"\r\nGET / HTTP/1.1\r\nHost: x\r\n\r\n".into(), "200", "GET / "),
        ("old", b"GET / HTTP/1.0\r\n\r\n".into(), "200", "GET / "),
        ("as to a proxy", b"GET http://h/p HTTP/1.1\r\nHost: h\r\n\r\n".into(), "200", "GET http://h/p "),
        ("a body", post("Content-Length: 3\r\n", "abc"), "200", "POST /p abc"),
        ("no body", post("", ""), "200", "POST /p "),
        ("chunks", post("Transfer-Encoding: chunked\r\n", "2\r\nab\r\n1;x=y\r\nc\r\n0\r\n\r\n"), "200", "POST /p abc"),
        ("trailers", post("Transfer-Encoding: chunked\r\n", "1\r\na\r\n0\r\nx: y\r\n\r\n"), "200", "POST /p a"),
        ("only the head", b"HEAD / HTTP/1.1\r\nHost: x\r\n\r\n".into(), "200", ""),
        ("garbage", b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03".into(), "400", "no HTTP"),
        ("another protocol", b"SSH-2.0-x\r\n\r\n".into(), "400", "no HTTP"),
        ("HTTP/2", b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".into(), "505", "only"),
        ("no host", b"GET / HTTP/1.1\r\n\r\n".into(), "400", "one host"),
        ("two hosts", b"GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n".into(), "400", "one host"),
        ("a host that is not text", b"GET / HTTP/1.1\r\nHost: \xff\r\n\r\n".into(), "400", "text"),
        ("a tunnel", b"CONNECT h:443 HTTP/1.1\r\nHost: h\r\n\r\n".into(), "400", "no request"),
        ("a space in a name", b"GET / HTTP/1.1\r\nHost : x\r\n\r\n".into(), "400", "no HTTP"),
        ("a folded line", b"GET / HTTP/1.1\r\nHost: x\r\n  y\r\n\r\n".into(), "400", "no HTTP"),
        ("two lengths", post("Content-Length: 3\r\nContent-Length: 3\r\n", "abc"), "400", "one length"),
        ("a length and chunks", post("Content-Length: 3\r\nTransfer-Encoding: chunked\r\n", ""), "400", "not both"),
        ("a negative length", post("Content-Length: -1\r\n", ""), "400", "number"),
        ("a list of lengths", post("Content-Length: 3, 3\r\n", "abc"), "400", "number"),
        ("a length beyond numbers", post(&format!("Content-Length: {}\r\n", "9".repeat(99)), ""), "413", "too long"),
        ("too long", post(&format!("Content-Length: {}\r\n", BODY_BYTES_MAX + 1), ""), "413", "too long"),
        ("too long in chunks", post("Transfer-Encoding: chunked\r\n", "ffffffff\r\n"), "413", "too long"),
        ("a size beyond numbers", post("Transfer-Encoding: chunked\r\n", &"f".repeat(99)), "400", "damaged"),
        ("no size", post("Transfer-Encoding: chunked\r\n", "zz\r\n"), "400", "damaged"),
        ("a chunk that is longer", post("Transfer-Encoding: chunked\r\n", "1\r\nabc\r\n"), "400", "damaged"),
        (
            "an endless size",
            post("Transfer-Encoding: chunked\r\n", &format!("1;{}", "x".repeat(999))),
            "400",
            "damaged",
        ),
        ("endless trailers", post("Transfer-Encoding: chunked\r\n", &format!("0\r\n{}", many(999))), "400", "damaged"),
        ("zipped", post("Transfer-Encoding: gzip, chunked\r\n", ""), "501", "chunks"),
        ("an old one with chunks", b"POST / HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n".into(), "400", "no chunks"),
        ("something expected", post("Expect: a-pony\r\nContent-Length: 3\r\n", "abc"), "417", "expected"),
        ("many headers", format!("GET / HTTP/1.1\r\nHost: x\r\n{}\r\n", many(60)).into_bytes(), "431", "headers"),
        ("a long header", [b"GET / HTTP/1.1\r\nHost: ", &[b'x'; HEAD_BYTES_MAX][..]].concat(), "431", "headers"),
        ("a long path", [b"GET /", &[b'x'; 2 * HEAD_BYTES_MAX][..]].concat(), "431", "headers"),
        ("a path that is not ASCII", b"GET /\xc3\xbc HTTP/1.1\r\nHost: x\r\n\r\n".into(), "400", "page"),
        ("nothing", Vec::new(), "", ""),
        ("half a line", b"GET / HT".into(), "", ""),
        ("half a body", post("Content-Length: 3\r\n", "ab"), "", ""),
        ("half a chunk", post("Transfer-Encoding: chunked\r\n", "3\r\nab"), "", ""),
    ];
    let house = House::new();
    house.run(async {
        let open = house.echo().await;
        for (case, said, status, body) in table {
            let answer = say(open.address(), &said).await;
            let Some(rest) = answer.strip_prefix("HTTP/1.1 ") else {
                assert_eq!((answer.as_str(), status), ("", ""), "{case}");
                continue;
            };
            let (head, content) = rest.split_once("\r\n\r\n").expect(case);
            assert!(head.starts_with(status) && !status.is_empty(), "{case}: {answer}");
            assert!(content.contains(body) && content.is_empty() == body.is_empty(), "{case}: {answer}");
        }
    });
}

#[test]
fn one_connection_serves_requests_in_order_even_if_they_come_at_once() {
    let house = House::new();
    house.run(async {
        let open = house.echo().await;
        let mut stream = call(open.address()).await;
        for _ in 0..3 {
            stream.write_all(GET).await.unwrap();
            let answer = one(&mut stream).await;
            assert!(answer.contains("Connection: keep-alive") && answer.ends_with("GET /a?b "), "{answer}");
        }
        let three: Vec<u8> = [
            &b"POST /1 HTTP/1.1\r\nHost: x\r\nContent-Length: 1\r\n\r\nx"[..],
            b"POST /2 HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n1\r\ny\r\n0\r\n\r\n",
            b"GET /3 HTTP/1.1\r\nHost: x\r\nConnection: x, Close\r\n\r\n",
        ]
        .concat();
        stream.write_all(&three).await.unwrap();
        let answers = rest(&mut stream).await;
        let order: Vec<_> = ["POST /1 x", "POST /2 y", "GET /3 "].iter().map(|part| answers.find(part)).collect();
        assert!(order.iter().all(Option::is_some) && order.is_sorted(), "{answers}");
    });
}

#[test]
fn who_waits_for_a_word_gets_it_and_who_sends_too_much_gets_none() {
    let house = House::new();
    house.run(async {
        let open = house.echo().await;
        let mut stream = call(open.address()).await;
        stream
            .write_all(b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\nExpect: 100-continue\r\n\r\n")
            .await
            .unwrap();
        let mut word = [0; 25];
        stream.read_exact(&mut word).await.unwrap();
        assert_eq!(&word, b"HTTP/1.1 100 Continue\r\n\r\n");
        stream.write_all(b"ok").await.unwrap();
        assert!(one(&mut stream).await.ends_with("POST / ok"));
        let large = b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 99999999\r\nExpect: 100-continue\r\n\r\n";
        stream.write_all(large).await.unwrap();
        assert!(rest(&mut stream).await.starts_with("HTTP/1.1 413"));
    });
}

/// A connection of its own, without a listener: what it waits for can be seen.
async fn session(house: &House) -> (Stream, Silent, Receiver<Asked>, Task<()>) {
    let listener = Async::new(TcpListener::bind("127.0.0.1:0").unwrap()).unwrap();
    let SocketAddr::V4(address) = listener.get_ref().local_addr().unwrap() else { unreachable!() };
    let (theirs, ours) = future::zip(call(address), listener.accept()).await;
    let (stream, visitor) = ours.unwrap();
    let silent: Silent = Rc::new(Cell::new(Some(Mono::BOOT)));
    let (knocks, asked) = bounded(VISITORS_MAX);
    let clock = Rc::clone(&house.port);
    let session = session::Session { stream, visitor, clock, knocks, silent: Rc::clone(&silent) };
    (theirs, silent, asked, house.executor.spawn(session.serve()))
}

#[test]
fn who_says_nothing_or_half_a_request_is_let_go() {
    let house = House::new();
    house.run(async {
        let (mut stream, _silent, _asked, _task) = session(&house).await;
        house.pass(IDLE_MAX).await;
        assert_eq!(rest(&mut stream).await, "", "silent from the beginning");

        let (mut stream, _, asked, _task) = session(&house).await;
        stream.write_all(GET).await.unwrap();
        let knock = Box::new(asked.recv().await.unwrap());
        future::zip(answer(knock, 200), one(&mut stream)).await;
        house.pass(IDLE_MAX).await;
        assert_eq!(rest(&mut stream).await, "", "silent after an answer");

        for half in [&GET[..GET.len() - 2], b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 9\r\n\r\nabc"] {
            let (mut stream, silent, _asked, _task) = session(&house).await;
            stream.write_all(half).await.unwrap();
            while silent.get().is_some() {
                future::yield_now().await;
            }
            house.pass(REQUEST_TAKES_MAX).await;
            // It still gets the reason, and may take it slowly.
            assert!(one(&mut stream).await.starts_with("HTTP/1.1 408"));
        }
    });
}

#[test]
fn a_silent_connection_costs_little() {
    let house = House::new();
    house.run(async {
        let listener = Async::new(TcpListener::bind("127.0.0.1:0").unwrap()).unwrap();
        let SocketAddr::V4(address) = listener.get_ref().local_addr().unwrap() else { unreachable!() };
        let (_theirs, ours) = future::zip(call(address), listener.accept()).await;
        let (stream, visitor) = ours.unwrap();
        let (knocks, _asked) = bounded(1);
        let clock = Rc::clone(&house.port);
        let serving = session::Session { stream, visitor, clock, knocks, silent: Silent::default() }.serve();
        // Its task is all that it has; the reactor's entry and the sleeper of its limit are some hundred bytes more.
        assert!(size_of_val(&serving) <= 1280, "{} bytes", size_of_val(&serving));
        println!("{} bytes", size_of_val(&serving));
    });
}

#[test]
fn a_trickle_does_not_buy_time() {
    let house = House::new();
    house.run(async {
        let (mut stream, silent, _asked, _task) = session(&house).await;
        stream.write_all(b"G").await.unwrap();
        while silent.get().is_some() {
            future::yield_now().await;
        }
        for _ in 0..9 {
            stream.write_all(b"E").await.unwrap();
            house.clock.advance(REQUEST_TAKES_MAX / 10);
            future::yield_now().await;
        }
        house.pass(REQUEST_TAKES_MAX / 10).await;
        assert!(one(&mut stream).await.starts_with("HTTP/1.1 408"));
    });
}

#[test]
fn who_does_not_read_is_let_go_and_the_answer_resolves() {
    let house = House::new();
    house.run(async {
        let (mut stream, _silent, asked, _task) = session(&house).await;
        stream.write_all(GET).await.unwrap();
        let knock = Box::new(asked.recv().await.unwrap());
        // More than the kernel holds for anybody.
        let endless = Response { status: 200, headers: Vec::new(), body: Cow::Owned(vec![b'.'; 64 << 20]) };
        future::zip(knock.answer(endless), house.pass(READING_TAKES_MAX)).await;
        assert!(rest(&mut stream).await.len() < 64 << 20);
    });
}

#[test]
fn a_knock_that_is_dropped_closes_the_connection() {
    let house = House::new();
    house.run(async {
        let open = house.open().await;
        let mut stream = call(open.address()).await;
        stream.write_all(GET).await.unwrap();
        drop(open.next().await);
        assert_eq!(rest(&mut stream).await, "");
    });
}

#[test]
fn who_is_silent_makes_room_and_who_is_served_does_not() {
    let house = House::new();
    house.run(async {
        let open = house.open().await;
        let mut streams = Vec::new();
        let mut knocks = Vec::new();
        for visitor in 0..VISITORS_MAX {
            let mut stream = call_as(visitor / EACH_MAX, open.address()).await;
            stream.write_all(GET).await.unwrap();
            knocks.push(open.next().await);
            streams.push(stream);
        }
        // All are being served.
        assert!(say(open.address(), GET).await.starts_with("HTTP/1.1 503"));
        // Two have their answer and keep their connection; the first of them has been silent for longer.
        for _ in 0..2 {
            let (_, text) = future::zip(answer(knocks.remove(0), 200), one(&mut streams[0])).await;
            assert!(text.starts_with("HTTP/1.1 200"));
            let first = streams.remove(0);
            streams.push(first);
            house.clock.happens_after(Duration::from_secs(1), || {});
            house.clock.advance(Duration::from_secs(1));
        }
        let mut newcomer = call(open.address()).await;
        newcomer.write_all(GET).await.unwrap();
        let (_, text) = future::zip(async { answer(open.next().await, 200).await }, one(&mut newcomer)).await;
        assert!(text.starts_with("HTTP/1.1 200"));
        let mut longest = streams.remove(VISITORS_MAX - 2);
        assert_eq!(rest(&mut longest).await, "", "it made room");
        let mut other = streams.pop().unwrap();
        other.write_all(GET).await.unwrap();
        let (_, text) = future::zip(async { answer(open.next().await, 200).await }, one(&mut other)).await;
        assert!(text.starts_with("HTTP/1.1 200"), "it was left alone");
    });
}

#[test]
fn nobody_fills_the_room_alone() {
    let house = House::new();
    house.run(async {
        let open = house.open().await;
        let (mut rude, mut knocks) = (Vec::new(), Vec::new());
        for _ in 0..EACH_MAX {
            let mut stream = call_as(1, open.address()).await;
            stream.write_all(GET).await.unwrap();
            knocks.push(open.next().await);
            rude.push(stream);
        }
        for _ in 0..VISITORS_MAX {
            let mut another = call_as(1, open.address()).await;
            let _ = another.write_all(GET).await;
            assert!(rest(&mut another).await.starts_with("HTTP/1.1 503"));
        }
        let mut guest = call_as(2, open.address()).await;
        guest.write_all(GET).await.unwrap();
        let (_, text) = future::zip(async { answer(open.next().await, 200).await }, one(&mut guest)).await;
        assert!(text.starts_with("HTTP/1.1 200"), "{text}");
        // One of his that is silent makes room for his next one, and nobody else's does.
        let (_, text) = future::zip(answer(knocks.remove(0), 200), one(&mut rude[0])).await;
        assert!(text.starts_with("HTTP/1.1 200"), "{text}");
        let mut another = call_as(1, open.address()).await;
        another.write_all(GET).await.unwrap();
        let (_, text) = future::zip(async { answer(open.next().await, 200).await }, one(&mut another)).await;
        assert!(text.starts_with("HTTP/1.1 200"), "{text}");
        assert_eq!(rest(&mut rude[0]).await, "");
        guest.write_all(GET).await.unwrap();
        let (_, text) = future::zip(async { answer(open.next().await, 200).await }, one(&mut guest)).await;
        assert!(text.starts_with("HTTP/1.1 200"), "{text}");
    });
}

#[test]
fn closing_the_door_closes_every_connection_and_frees_the_address() {
    let house = House::new();
    house.run(async {
        let open = house.open().await;
        let address = open.address();
        let mut stream = call(address).await;
        stream.write_all(GET).await.unwrap();
        let knock = open.next().await;
        drop(open);
        assert_eq!(rest(&mut stream).await, "");
        // Comes to an end although nobody is there any more.
        answer(knock, 200).await;
        let doorway = PortableDoorway::new(&house.executor, Rc::clone(&house.port));
        let again = doorway.open(address).await.expect("the address is free");
        let Err(taken) = doorway.open(address).await else { panic!("two listeners at one address") };
        assert!(taken.to_string().contains(&address.to_string()), "{taken}");
        drop(again);
    });
}

#[test]
fn an_answer_is_one_that_clients_understand() {
    let house = House::new();
    house.run(async {
        let open = house.open().await;
        for (status, headers, head_has, body) in [
            (204, vec![], "HTTP/1.1 204 No Content\r\nConnection: close\r\n\r\n", &b""[..]),
            (302, vec![("Location", Cow::Borrowed("http://10.42.0.1/"))], "Location: http://10.42.0.1/\r\n", b""),
            (200, vec![("Connection", Cow::Borrowed("close"))], "Content-Length: 2\r\nConnection: close\r\n", b"ok"),
        ] {
            let said: &[u8] = if status == 200 { GET } else { b"GET / HTTP/1.0\r\n\r\n" };
            let give = async {
                open.next().await.answer(Response { status, headers, body: Cow::Borrowed(body) }).await;
            };
            let (text, ()) = future::zip(say(open.address(), said), give).await;
            assert!(text.contains(head_has) && text.ends_with(std::str::from_utf8(body).unwrap()), "{text}");
        }
    });
}

#[test]
fn ten_thousand_visitors_one_after_the_other() {
    let house = House::new();
    house.run(async {
        let open = house.echo().await;
        for _ in 0..10_000 {
            let mut stream = call(open.address()).await;
            stream.write_all(b"GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n").await.unwrap();
            assert!(rest(&mut stream).await.starts_with("HTTP/1.1 200"));
        }
    });
}

#[test]
fn a_hundred_visitors_at_once_are_served_or_told() {
    let house = House::new();
    house.run(async {
        let open = house.echo().await;
        let visits: Vec<_> = (0..100)
            .map(|phone| {
                let address = open.address();
                house.executor.spawn(async move { say_over(call_as(phone, address).await, GET).await })
            })
            .collect();
        let mut served = 0;
        for visit in visits {
            let answer = visit.await;
            served += u32::from(answer.starts_with("HTTP/1.1 200"));
            // Whoever was reset read nothing, and tries again by itself.
            assert!(["HTTP/1.1 200", "HTTP/1.1 503", ""].iter().any(|way| answer.starts_with(way)), "{answer}");
        }
        assert!(served >= 16, "{served} were served");
        assert!(say(open.address(), GET).await.starts_with("HTTP/1.1 200"), "and it goes on afterwards");
    });
}
