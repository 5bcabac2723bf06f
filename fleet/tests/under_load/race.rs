//! Many who have read the same revision, and write what follows from it, at one server or at several.

use std::sync::Arc;

use api::pb::platform::app::v1::*;
use tokio::sync::Barrier;
use tonic::{Code, Status};

use super::world::{Client, Owner};

const WRITERS: usize = 200;

/// All of them at once, in turn over the servers; the one that was told yes.
async fn winner<F>(clients: &[Client], write: impl Fn(Client, usize) -> F) -> usize
where
    F: Future<Output = Result<(), Status>> + Send + 'static,
{
    let together = Arc::new(Barrier::new(WRITERS));
    let writers = (0..WRITERS).map(|n| {
        let (write, together) = (write(clients[n % clients.len()].clone(), n), together.clone());
        tokio::spawn(async move {
            together.wait().await;
            write.await
        })
    });
    let mut won = Vec::new();
    for (n, writer) in writers.collect::<Vec<_>>().into_iter().enumerate() {
        match writer.await.unwrap() {
            Ok(()) => won.push(n),
            Err(status) => assert_eq!(status.code(), Code::Aborted, "{status:?}"),
        }
    }
    assert_eq!(won.len(), 1, "{won:?}");
    won[0]
}

/// What a writer writes.
fn written(round: usize, writer: usize) -> String {
    format!(r#"{{"round": {round}, "writer": {writer}}}"#)
}

/// Fails if it is not what the one that was told yes wrote.
fn has_what_was_written(config: Option<String>, round: usize, won: usize) {
    assert_eq!(config, Some(written(round, won)), "what the winner wrote");
}

/// Of a part's configuration, three times.
pub(crate) async fn of_a_part(owner: &Owner, clients: &[Client]) {
    owner.location("North", None).await;
    let machine = owner.machine("", "arm").await;
    let (mut last, mut revisions) = ((0, 0), 0);
    for round in 0..3 {
        let part = owner.main_part(&machine).await;
        let updated = part.last_updated.as_ref().map_or((0, 0), |at| (at.seconds, at.nanos));
        assert!(updated > last, "it strictly rises");
        last = updated;
        let won = winner(clients, |client, n| {
            let request = UpdateRobotPartRequest {
                id: part.id.clone(),
                name: part.name.clone(),
                robot_config_json: Some(written(round, n)),
                last_known_update: part.last_updated,
                ..UpdateRobotPartRequest::default()
            };
            async move { client.app::<_, UpdateRobotPartResponse>("UpdateRobotPart", request).await.map(drop) }
        })
        .await;
        revisions += 1;
        has_what_was_written(owner.main_part(&machine).await.robot_config_json, round, won);
    }
    let request = GetRobotPartHistoryRequest { id: owner.main_part(&machine).await.id, ..Default::default() };
    let history: GetRobotPartHistoryResponse = owner.client.app("GetRobotPartHistory", request).await.unwrap();
    assert_eq!(history.history.len(), revisions);
}

/// Of a fragment.
pub(crate) async fn of_a_fragment(owner: &Owner, clients: &[Client]) {
    let request = CreateFragmentRequest {
        name: "base".into(),
        organization_id: owner.organization.clone(),
        ..CreateFragmentRequest::default()
    };
    let made: CreateFragmentResponse = owner.client.app("CreateFragment", request).await.unwrap();
    let id = made.fragment.unwrap().id;
    let read = async || {
        let request = GetFragmentRequest { id: id.clone(), ..Default::default() };
        let found: GetFragmentResponse = owner.client.app("GetFragment", request).await.unwrap();
        found.fragment.unwrap()
    };
    for round in 0..2 {
        let fragment = read().await;
        assert_eq!(fragment.revision, (round + 1).to_string());
        let won = winner(clients, |client, n| {
            let request = UpdateFragmentRequest {
                id: fragment.id.clone(),
                name: fragment.name.clone(),
                fragment_config_json: Some(written(round, n)),
                last_known_update: fragment.last_updated,
                ..UpdateFragmentRequest::default()
            };
            async move { client.app::<_, UpdateFragmentResponse>("UpdateFragment", request).await.map(drop) }
        })
        .await;
        has_what_was_written(read().await.fragment_config_json, round, won);
    }
    let request = GetFragmentHistoryRequest { id: id.clone(), page_limit: Some(100), page_token: None };
    let history: GetFragmentHistoryResponse = owner.client.app("GetFragmentHistory", request).await.unwrap();
    assert_eq!(history.history.len(), 3, "as it was made, and one for each round");
}
