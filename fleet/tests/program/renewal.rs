//! The program's certificate is renewed while it runs: at a signal, without one, and not with what is none.

use std::{path::PathBuf, time::Duration};

use tonic::{
    Code,
    transport::{Certificate, Channel, ClientTlsConfig},
};

use super::*;

struct Pair {
    certificate: String,
    key: String,
}

fn pair() -> Pair {
    let made = rcgen::generate_simple_self_signed(vec!["localhost".to_owned()]).unwrap();
    Pair { certificate: made.cert.pem(), key: made.signing_key.serialize_pem() }
}

/// A connection that trusts this certificate alone.
async fn connected(server: &Server, pair: &Pair) -> Option<Client> {
    let trust = Certificate::from_pem(&pair.certificate);
    let trust = ClientTlsConfig::new().ca_certificate(trust).domain_name("localhost");
    let channel = Channel::from_shared(server.url.clone()).unwrap().tls_config(trust).unwrap();
    Some(Client { channel: channel.connect().await.ok()?, token: None })
}

async fn answers(client: &Client) -> bool {
    let call = client.app::<_, ListOrganizationsResponse>("ListOrganizations", ListOrganizationsRequest {});
    world::code(call.await) == Code::Unauthenticated
}

async fn eventually<T>(what: &str, mut look: impl AsyncFnMut() -> Option<T>) -> T {
    let found = async {
        loop {
            if let Some(found) = look().await {
                return found;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    tokio::time::timeout(world::PATIENCE, found).await.unwrap_or_else(|_| panic!("{what}"))
}

struct Files {
    certificate: PathBuf,
    key: PathBuf,
    log: PathBuf,
}

impl Files {
    fn put(&self, pair: &Pair) {
        fs::write(&self.key, &pair.key).unwrap();
        fs::write(&self.certificate, &pair.certificate).unwrap();
    }

    /// Waits until the log has said this so often.
    async fn told(&self, words: &str, times: usize) {
        let said = async || {
            let log = fs::read_to_string(&self.log).unwrap();
            (log.matches(words).count() >= times).then_some(())
        };
        eventually(&format!("{words} is not in the log {times} times"), said).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_renewed_certificate_is_shown_at_a_signal_and_without_and_a_broken_one_never() {
    const USED: &str = "a new certificate is in use";
    const REFUSED: &str = "cannot be used: the old ones stay";
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().join("data");
    let path = |name: &str| folder.path().join(name);
    let files = Files { certificate: path("cert.pem"), key: path("key.pem"), log: path("log") };
    let (first, second, third) = (pair(), pair(), pair());
    files.put(&first);
    let log = fs::File::create(&files.log).unwrap();
    let mut server = Server::start_with(&data, |command| {
        command.arg("--tls-cert").arg(&files.certificate).arg("--tls-key").arg(&files.key).stderr(log)
    });
    let pid = server.process.id().to_string();
    let signal = |name: &str| assert!(Command::new("kill").args([name, &pid]).status().unwrap().success());
    let of_first = connected(&server, &first).await.expect("the first certificate");
    assert!(answers(&of_first).await);

    // Files that have not changed are read at a signal only: it is heard, and is not the program's end.
    signal("-HUP");
    files.told(USED, 1).await;

    // What is no certificate is told, and the old one stays.
    fs::write(&files.certificate, "half a f").unwrap();
    signal("-HUP");
    files.told(REFUSED, 1).await;
    fs::write(&files.certificate, &second.certificate).unwrap();
    signal("-HUP");
    files.told(REFUSED, 2).await;
    let still = connected(&server, &first).await.expect("the first certificate is shown on");
    assert!(answers(&still).await);

    // A pair that is whole is shown to who comes then; who is there goes on.
    files.put(&second);
    signal("-HUP");
    let of_second = eventually("the second certificate", async || connected(&server, &second).await).await;
    assert!(answers(&of_second).await && answers(&of_first).await);
    assert!(connected(&server, &first).await.is_none(), "nobody new is shown the first one");

    // The same without a signal, a few seconds later.
    files.put(&third);
    let of_third = eventually("the third certificate", async || connected(&server, &third).await).await;
    for client in [of_first, of_second, of_third] {
        assert!(answers(&client).await, "who is connected stays so");
    }
    signal("-TERM");
    assert!(server.process.wait().unwrap().success());
    let log = fs::read_to_string(&files.log).unwrap();
    assert!(!log.contains("PRIVATE KEY") && !log.contains(first.key.lines().nth(1).unwrap()), "{log}");
}
