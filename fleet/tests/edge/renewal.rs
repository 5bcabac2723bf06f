//! A certificate that is renewed while the server runs.

use std::{fs, time::Duration};

use api::pb::platform::app::v1::{ListOrganizationsRequest, ListOrganizationsResponse};
use tonic::{
    Code,
    transport::{Certificate, Channel, ClientTlsConfig},
};

use super::world::{self, Client, code};

/// A client that trusts this certificate alone.
async fn connected(url: &str, pem: &str) -> Option<Client> {
    let trust = ClientTlsConfig::new().ca_certificate(Certificate::from_pem(pem)).domain_name("localhost");
    let channel = Channel::from_shared(url.to_owned()).unwrap().tls_config(trust).unwrap();
    Some(Client { channel: channel.connect().await.ok()?, token: None })
}

async fn answers(client: &Client) -> bool {
    let call = client.app::<_, ListOrganizationsResponse>("ListOrganizations", ListOrganizationsRequest {});
    code(call.await) == Code::Unauthenticated
}

#[tokio::test]
async fn a_renewed_certificate_is_used_from_the_next_connection_on() {
    let folder = tempfile::tempdir().unwrap();
    let (certificate, key) = (folder.path().join("cert.pem"), folder.path().join("key.pem"));
    let pair = || rcgen::generate_simple_self_signed(vec!["localhost".to_owned()]).unwrap();
    let (first, second) = (pair(), pair());
    fs::write(&certificate, first.cert.pem()).unwrap();
    fs::write(&key, first.signing_key.serialize_pem()).unwrap();
    let options = fleet::wiring::Options {
        folder: folder.path().join("data"),
        database: world::engine::database(folder.path()),
        tls: Some((certificate.clone(), key.clone())),
        ..Default::default()
    };
    let server = fleet::wiring::start(options).await.unwrap();
    let old = connected(&server.url, &first.cert.pem()).await.expect("the first certificate");
    assert!(answers(&old).await);
    assert!(connected(&server.url, &second.cert.pem()).await.is_none());
    // Half of it: nothing changes, and nothing breaks.
    fs::write(&certificate, second.cert.pem()).unwrap();
    server.reload();
    let refused = async {
        while world::metric(&server, "fleet_certificates_refused_total") == 0 {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    tokio::time::timeout(world::PATIENCE, refused).await.expect("it was looked at");
    assert!(connected(&server.url, &second.cert.pem()).await.is_none());
    let still = connected(&server.url, &first.cert.pem()).await.expect("the first certificate");
    assert!(answers(&still).await);
    fs::write(&key, second.signing_key.serialize_pem()).unwrap();
    server.reload();
    let renewed = async {
        loop {
            if let Some(client) = connected(&server.url, &second.cert.pem()).await {
                return client;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    let new = tokio::time::timeout(world::PATIENCE, renewed).await.expect("the second certificate");
    assert!(answers(&new).await);
    assert!(answers(&old).await, "who is connected stays so");
    server.stop().await;
}
