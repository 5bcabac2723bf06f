//! Locations, parts and fragments: with their history and their rows of the audit log.

use api::pb::platform::{app::v1::*, fleet::v1::*};
use tonic::Status;

use super::super::world::Owner;
use super::{Doing, There, Writer};

/// Makes locations.
pub(super) struct Places {
    owner: Owner,
    ids: Vec<String>,
}

impl Places {
    pub(super) async fn new(there: &There) -> Self {
        Self { owner: there.owner().await, ids: Vec::new() }
    }
}

impl Writer for Places {
    fn kind(&self) -> &'static str {
        "locations"
    }

    fn step(&mut self) -> Doing<'_, Result<(), Status>> {
        Box::pin(async {
            let request = CreateLocationRequest {
                organization_id: self.owner.organization.clone(),
                name: "another".into(),
                parent_location_id: None,
            };
            let made: CreateLocationResponse = self.owner.client.app("CreateLocation", request).await?;
            self.ids.push(made.location.unwrap().id);
            Ok(())
        })
    }

    fn acknowledged(&self) -> u64 {
        self.ids.len() as u64
    }

    fn check_from<'a>(&'a mut self, there: &'a There, least: u64) -> Doing<'a, ()> {
        Box::pin(async move {
            let owner = there.owner().await;
            let list = ListLocationsRequest { organization_id: owner.organization };
            let listed: ListLocationsResponse = owner.client.app("ListLocations", list).await.unwrap();
            let is_there = self.ids.iter().map(|id| listed.locations.iter().any(|one| one.id == *id));
            let is_there: Vec<bool> = is_there.collect();
            let count = is_there.iter().take_while(|there| **there).count();
            assert!(count as u64 >= least, "{count}, {least} acknowledged");
            assert!(!is_there[count..].contains(&true), "one was made after another that is not there: {is_there:?}");
        })
    }
}

/// Changes one part's configuration, each time on what it was told the time before.
pub(super) struct Parts {
    owner: Owner,
    part: RobotPart,
    acknowledged: u64,
    asked: u64,
}

impl Parts {
    pub(super) async fn new(there: &There) -> Self {
        let owner = there.owner().await;
        let part = there.new_part(&owner).await;
        Self { owner, part, acknowledged: 0, asked: 0 }
    }

    async fn is_whole(&self, there: &There, least: u64) {
        let (owner, id) = (there.owner().await, self.part.id.clone());
        let request = GetRobotPartRequest { id: id.clone() };
        let found: GetRobotPartResponse = owner.client.app("GetRobotPart", request).await.unwrap();
        let now = revision(&found.part.unwrap());
        assert!((least..=self.asked).contains(&now), "{now}, {least} acknowledged");
        // One former state and one row of the audit for each change that happened, and for no other.
        let request = GetRobotPartHistoryRequest { id: id.clone(), ..Default::default() };
        let history: GetRobotPartHistoryResponse = owner.client.app("GetRobotPartHistory", request).await.unwrap();
        let former: Vec<u64> = history.history.iter().map(|entry| revision(entry.old.as_ref().unwrap())).collect();
        assert_eq!(former, (0..now).rev().collect::<Vec<_>>(), "the former states, newest first");
        assert_eq!(changes(&owner, &id, "UpdateRobotPart").await, now, "rows of the audit");
    }
}

fn revision(part: &RobotPart) -> u64 {
    let config = part.robot_config_json.as_deref().unwrap_or("{}");
    serde_json::from_str::<serde_json::Value>(config).unwrap()["revision"].as_u64().unwrap_or_default()
}

impl Writer for Parts {
    fn kind(&self) -> &'static str {
        "parts"
    }

    fn step(&mut self) -> Doing<'_, Result<(), Status>> {
        Box::pin(async {
            self.asked = self.acknowledged + 1;
            let request = UpdateRobotPartRequest {
                id: self.part.id.clone(),
                name: self.part.name.clone(),
                robot_config_json: Some(format!(r#"{{"revision": {}}}"#, self.asked)),
                last_known_update: self.part.last_updated,
                ..UpdateRobotPartRequest::default()
            };
            let reply: UpdateRobotPartResponse = self.owner.client.app("UpdateRobotPart", request).await?;
            self.part = reply.part.unwrap();
            self.acknowledged = self.asked;
            Ok(())
        })
    }

    fn acknowledged(&self) -> u64 {
        self.acknowledged
    }

    fn check_from<'a>(&'a mut self, there: &'a There, least: u64) -> Doing<'a, ()> {
        Box::pin(self.is_whole(there, least))
    }
}

/// Changes one fragment, the same way.
pub(super) struct Fragments {
    owner: Owner,
    fragment: Fragment,
    acknowledged: u64,
    asked: u64,
}

impl Fragments {
    pub(super) async fn new(there: &There) -> Self {
        let owner = there.owner().await;
        let request = CreateFragmentRequest {
            name: fleet::ids::new_id(),
            organization_id: owner.organization.clone(),
            ..CreateFragmentRequest::default()
        };
        let made: CreateFragmentResponse = owner.client.app("CreateFragment", request).await.unwrap();
        Self { owner, fragment: made.fragment.unwrap(), acknowledged: 0, asked: 0 }
    }

    async fn is_whole(&self, there: &There, least: u64) {
        let (owner, id) = (there.owner().await, self.fragment.id.clone());
        // The revisions that it had and has: what it was made with is the first.
        let (mut revisions, mut token) = (Vec::new(), None);
        while token.as_deref() != Some("") {
            let request = GetFragmentHistoryRequest { id: id.clone(), page_token: token, page_limit: Some(100) };
            let page: GetFragmentHistoryResponse = owner.client.app("GetFragmentHistory", request).await.unwrap();
            revisions.extend(page.history.into_iter().map(|one| one.revision.parse::<u64>().unwrap()));
            token = Some(page.next_page_token);
        }
        let found: GetFragmentResponse =
            owner.client.app("GetFragment", GetFragmentRequest { id: id.clone(), ..Default::default() }).await.unwrap();
        let now = found.fragment.unwrap().revision.parse::<u64>().unwrap() - 1;
        assert!((least..=self.asked).contains(&now), "{now}, {least} acknowledged");
        assert_eq!(revisions, (1..=now + 1).rev().collect::<Vec<_>>(), "every revision, newest first");
        assert_eq!(changes(&owner, &id, "UpdateFragment").await, now, "rows of the audit");
    }
}

impl Writer for Fragments {
    fn kind(&self) -> &'static str {
        "fragments"
    }

    fn step(&mut self) -> Doing<'_, Result<(), Status>> {
        Box::pin(async {
            self.asked = self.acknowledged + 1;
            let request = UpdateFragmentRequest {
                id: self.fragment.id.clone(),
                name: self.fragment.name.clone(),
                fragment_config_json: Some(format!(r#"{{"revision": {}}}"#, self.asked)),
                last_known_update: self.fragment.last_updated,
                ..UpdateFragmentRequest::default()
            };
            let reply: UpdateFragmentResponse = self.owner.client.app("UpdateFragment", request).await?;
            self.fragment = reply.fragment.unwrap();
            self.acknowledged = self.asked;
            Ok(())
        })
    }

    fn acknowledged(&self) -> u64 {
        self.acknowledged
    }

    fn check_from<'a>(&'a mut self, there: &'a There, least: u64) -> Doing<'a, ()> {
        Box::pin(self.is_whole(there, least))
    }
}

/// Rows of the audit log about one thing.
pub(super) async fn changes(owner: &Owner, id: &str, operation: &str) -> u64 {
    let events = audit(owner).await;
    events.iter().filter(|event| event.resource_id == id && event.operation == operation).count() as u64
}

/// Every row of the organization's audit log.
async fn audit(owner: &Owner) -> Vec<AuditEvent> {
    let (mut events, mut token) = (Vec::new(), String::new());
    loop {
        let request =
            ListAuditEventsRequest { organization_id: owner.organization.clone(), limit: 1000, page_token: token };
        let path = "/platform.fleet.v1.AdminService/ListAuditEvents";
        let page: ListAuditEventsResponse = owner.client.call(path, request).await.unwrap();
        events.extend(page.events);
        token = page.next_page_token;
        if token.is_empty() {
            return events;
        }
    }
}
