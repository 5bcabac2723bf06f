//! Reading a part's log: in pages, and as it grows.

use std::time::Duration;

use api::pb::platform::app::v1::{
    GetRobotPartLogsRequest, GetRobotPartLogsResponse, TailRobotPartLogsRequest, TailRobotPartLogsResponse,
};
use tokio::{sync::mpsc, time::MissedTickBehavior};
use tokio_stream::wrappers::ReceiverStream;
use tonic::Status;

use crate::{
    authn::{Authn, Caller},
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

/// How often an open stream asks whether its key still counts, and whether it still may; both must reach it within two seconds.
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

/// TailRobotPartLogs. Ends when the reader goes away or may not read any more, its key is revoked, or the server stops; never
/// sends an empty message, which a client would take for the end.
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
    // One message under way: whoever does not read fills the part's ring, not this server's memory. And room for the end,
    // which would be none without its reason.
    let (replies, stream) = mpsc::channel(2);
    let last = replies.clone().try_reserve_owned().expect("nothing is in it yet");
    let mut draining = context.draining.clone();
    let (authn, authz) = (context.authn.clone(), context.authz.clone());
    tokio::spawn(async move {
        let end = tokio::select! {
            () = send_all(follower, &replies) => None,
            () = gone => Some(Refusal::not_found("robot part", part.id())),
            why = no_longer(&authn, &authz, caller, part.id(), moved) => Some(why),
            _ = draining.wait_for(|draining| *draining) => Some(Refusal::from(DbError::Closed)),
        };
        if let Some(end) = end {
            // Not waited for: a reader that does not read hears it when it does.
            last.send(Err(end.into()));
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
async fn no_longer(authn: &Authn, authz: &Authz, mut caller: Caller, part: &str, mut moved: u64) -> Refusal {
    let mut ticks = tokio::time::interval(REVOCATION_CHECK_EVERY);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        if caller.is_revoked() || caller.is_outdated() || caller.moved() != moved {
            match still_reads(authn, authz, &caller, part).await {
                Ok(now) => (caller, moved) = now,
                Err(refusal) if refusal.is_final() => return refusal,
                // The database cannot be asked at the moment: in a second once more.
                Err(_) => {}
            }
        }
        ticks.tick().await;
    }
}

/// The caller with the roles that it has by now, and what [`Caller::moved`] said before it was asked whether it may.
async fn still_reads(authn: &Authn, authz: &Authz, caller: &Caller, part: &str) -> Result<(Caller, u64), Refusal> {
    let caller = authn.again(caller).await?;
    let moved = caller.moved();
    authz.part::<ReadRobotLogs>(&caller, part).await?;
    Ok((caller, moved))
}
