//! Reading a part's log: in pages, and as it grows.

use std::time::Duration;

use api::pb::platform::app::v1::{
    GetRobotPartLogsRequest, GetRobotPartLogsResponse, TailRobotPartLogsRequest, TailRobotPartLogsResponse,
};
use tokio::{sync::mpsc, time::MissedTickBehavior};
use tokio_stream::wrappers::ReceiverStream;
use tonic::Status;

use crate::{
    authn::Caller,
    authz::{Authz, right::ReadRobotLogs},
    clock::Clock,
    context::Context,
    logs::{
        hub::Follower,
        query::{Query, Wanted},
    },
    operations::Replies,
    refusal::Refusal,
    store::DbError,
    written::Written,
};

/// How often an open stream asks whether its key still counts, and whether it still may; revocation must reach it within two seconds.
const REVOCATION_CHECK_EVERY: Duration = Duration::from_secs(1);

/// GetRobotPartLogs.
pub async fn get(
    context: &Context,
    caller: Caller,
    request: GetRobotPartLogsRequest,
) -> Result<GetRobotPartLogsResponse, Refusal> {
    let part = context.authz.part::<ReadRobotLogs>(&caller, &request.id).await?;
    let query = Query::read(&request, context.clock.now())?;
    let page = context.logs.page(part.id(), query).await?;
    Ok(GetRobotPartLogsResponse { logs: page.entries, next_page_token: page.next })
}

/// TailRobotPartLogs. Ends when the reader goes away, its key is revoked, or the server stops; never sends an empty
/// message, which a client would take for the end.
pub async fn tail(
    context: &Context,
    caller: Caller,
    request: TailRobotPartLogsRequest,
) -> Result<Replies<Written<TailRobotPartLogsResponse>>, Refusal> {
    let part = context.authz.part::<ReadRobotLogs>(&caller, &request.id).await?;
    let wanted = Wanted::new(&[], request.errors_only, request.filter.as_deref())?;
    let follower = context.logs.follow(part.id(), wanted).await?;
    let gone = follower.gone();
    let moved = caller.moved();
    // Once more, now that its end would be heard.
    context.authz.part::<ReadRobotLogs>(&caller, part.id()).await?;
    // One message under way: whoever does not read fills the part's ring, not this server's memory.
    let (replies, stream) = mpsc::channel(1);
    let mut draining = context.draining.clone();
    let authz = context.authz.clone();
    tokio::spawn(async move {
        let end = tokio::select! {
            () = send_all(follower, &replies) => None,
            () = gone => Some(Refusal::not_found("robot part", part.id())),
            why = no_longer(&authz, &caller, part.id(), moved) => Some(why),
            _ = draining.wait_for(|draining| *draining) => Some(Refusal::from(DbError::Closed)),
        };
        if let Some(end) = end {
            // Not waited for: a reader that does not read would hold the stream open.
            let _ = replies.try_send(Err(end.into()));
        }
    });
    Ok(Box::pin(ReceiverStream::new(stream)))
}

type Sender = mpsc::Sender<Result<Written<TailRobotPartLogsResponse>, Status>>;

/// Until the reader goes away.
async fn send_all(mut follower: Follower, replies: &Sender) {
    let clock = Clock::default();
    // Room first: a batch is taken out of the ring only when it can be sent, so that what is missed is counted there.
    while let Ok(room) = replies.reserve().await {
        tokio::select! {
            batch = follower.next() => room.send(Ok(batch.into_message(clock.now()))),
            () = replies.closed() => return,
        }
    }
}

/// Until the caller may not read it any more, and why. `moved` is what [`Caller::moved`] said when it was let in.
async fn no_longer(authz: &Authz, caller: &Caller, part: &str, mut moved: u64) -> Refusal {
    let mut ticks = tokio::time::interval(REVOCATION_CHECK_EVERY);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    while !caller.is_revoked() {
        let now = caller.moved();
        if now != moved {
            match authz.part::<ReadRobotLogs>(caller, part).await {
                Ok(_) => moved = now,
                Err(refusal) if refusal.is_final() => return refusal,
                // The database cannot be asked at the moment: in a second once more.
                Err(_) => {}
            }
        }
        ticks.tick().await;
    }
    Refusal::unauthenticated("the key was deleted or changed: authenticate again")
}
