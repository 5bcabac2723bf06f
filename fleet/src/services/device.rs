//! What devices call: their configuration, their log, their status, whether to restart.
//!
//! Each call counts as a sign of life, in memory; none costs a commit for that.

use api::pb::platform::{
    app::{
        agent::v1::{DeviceAgentConfigRequest, DeviceAgentConfigResponse},
        v1::{ConfigRequest, ConfigResponse, LogRequest, LogResponse, NeedsRestartRequest, NeedsRestartResponse},
    },
    common::v1::LogEntry,
    fleet::v1::{
        DeviceStatus, ReportRequest, ReportResponse, ServerStatus, UpdateRetry, UpdateStatus, UploadLogsRequest,
        UploadLogsResponse,
    },
};
use prost::Message as _;

use super::{configuration, input, robot_config};
use crate::{
    authn::Caller,
    authz::{Granted, Part, right::ActAsDevice},
    clock::{Millis, millis},
    context::Context,
    hex,
    logs::{ENTRIES_PER_CALL_MAX, SPOOL_ID_MAX_BYTES, Source},
    refusal::Refusal,
    store::{DbError, devices, status},
    written::Written,
};

/// Of a device's status; the device's own limits keep it far below.
const STATUS_MAX_BYTES: usize = 64 << 10;

/// Who calls as this part's device; and that it lives.
async fn device(
    context: &Context,
    caller: &Caller,
    part: &str,
) -> Result<(Granted<Part, ActAsDevice>, Millis), Refusal> {
    let part = context.authz.device(caller, part).await?;
    let now = context.clock.now();
    context.presence.touch(part.id(), now);
    Ok((part, now))
}

/// DeviceAgentConfig: the `agent` section of the part's configuration.
pub async fn agent_config(
    context: &Context,
    caller: Caller,
    request: DeviceAgentConfigRequest,
) -> Result<Written<DeviceAgentConfigResponse>, Refusal> {
    let (part, now) = device(context, &caller, &request.id).await?;
    let platform = request.host_info.map(|host| host.platform).unwrap_or_default();
    configuration::encoded(context, &part, &platform, now).await
}

/// Config: the whole of it, as a machine server reads it.
pub async fn config(context: &Context, caller: Caller, request: ConfigRequest) -> Result<ConfigResponse, Refusal> {
    let (part, _) = device(context, &caller, &request.id).await?;
    let composed = configuration::composed(context, &part).await?;
    let composed = composed.map_err(|refused| Refusal::precondition(refused.to_string()))?;
    Ok(ConfigResponse { config: Some(robot_config::from_composed(&part, &composed)) })
}

/// Log: entries of a caller that does not number its batches.
pub async fn log(context: &Context, caller: Caller, request: LogRequest) -> Result<LogResponse, Refusal> {
    let (part, now) = device(context, &caller, &request.id).await?;
    check_count(&request.logs)?;
    context.logs.take(part.id(), Source::Unnumbered, request.logs, now).await?;
    Ok(LogResponse {})
}

/// UploadLogs: one numbered batch; a repeat is acknowledged and dropped.
pub async fn upload_logs(
    context: &Context,
    caller: Caller,
    request: UploadLogsRequest,
) -> Result<UploadLogsResponse, Refusal> {
    let (part, now) = device(context, &caller, &request.part_id).await?;
    check_count(&request.logs)?;
    input::printable("spool_id", &request.spool_id)?;
    if request.spool_id.is_empty() || request.spool_id.len() > SPOOL_ID_MAX_BYTES {
        return Err(Refusal::unfit(
            "spool_id",
            &request.spool_id,
            format_args!("give 1 to {SPOOL_ID_MAX_BYTES} bytes"),
        ));
    }
    let number = i64::try_from(request.batch_number).ok().filter(|number| *number > 0);
    let number = number.ok_or_else(|| Refusal::invalid("batch_number", "has no place: batches are counted from 1"))?;
    let taken = context.logs.take(part.id(), Source::Spool { id: request.spool_id, number }, request.logs, now).await?;
    Ok(UploadLogsResponse { acknowledged: u64::try_from(taken.acknowledged).unwrap_or_default() })
}

fn check_count(entries: &[LogEntry]) -> Result<(), Refusal> {
    match entries.len() > ENTRIES_PER_CALL_MAX {
        true => Err(Refusal::invalid(
            "logs",
            format!("has too many entries: at most {ENTRIES_PER_CALL_MAX} go into one call"),
        )),
        false => Ok(()),
    }
}

/// NeedsRestart: tells the device of an operator's wish once. The call after that one clears it.
pub async fn needs_restart(
    context: &Context,
    caller: Caller,
    request: NeedsRestartRequest,
) -> Result<NeedsRestartResponse, Refusal> {
    let (part, now) = device(context, &caller, &request.id).await?;
    // Nearly always there is no mark, and no transaction is needed to see that. If there is one, it is looked at again
    // in the transaction that answers it: of two calls at once only one is told.
    let must_restart = match context.store.read(|tx| devices::restart_mark(tx, &part)).await? {
        None => false,
        Some(_) => {
            let part = part.clone();
            let answer = move |tx: &crate::store::Tx<'_>| match devices::restart_mark(tx, &part)? {
                None => Ok::<_, DbError>(false),
                Some(mark) if mark.told.is_none() => devices::restart_told(tx, &part, mark, now).map(|()| true),
                Some(mark) => devices::clear_restart_mark(tx, &part, mark.at).map(|_| false),
            };
            context.store.write(answer).await?
        }
    };
    Ok(NeedsRestartResponse {
        id: request.id,
        must_restart,
        // Beside its configuration, so that it wakes up once.
        restart_check_interval: prost_types::Duration::try_from(context.check_every).ok(),
    })
}

/// Report: what the device says of itself; answered with what it is to try again. A start of the machine server later
/// than the mark clears the mark. A device that does not know what NeedsRestart was answered last is told again.
pub async fn report(context: &Context, caller: Caller, request: ReportRequest) -> Result<ReportResponse, Refusal> {
    let (part, now) = device(context, &caller, &request.part_id).await?;
    let status = request.status.ok_or_else(|| Refusal::invalid("status", "is missing: a report is one"))?;
    if status.encoded_len() > STATUS_MAX_BYTES {
        return Err(Refusal::invalid(
            "status",
            format!("has {} bytes: at most {STATUS_MAX_BYTES} are kept", status.encoded_len()),
        ));
    }
    let started = started_at(&status, now);
    let server = status.server.clone().unwrap_or_default();
    let told = hex::encode(&status.encode_to_vec());
    let write = move |tx: &crate::store::Tx<'_>| {
        // A start that was told before the mark is not what was asked for, however long this report was on its way.
        let marked = started.is_some() && devices::restart_mark(tx, &part)?.is_some();
        let known = marked && status::get(tx, part.id())?.is_some_and(|(before, _)| tells_start_of(&before, &server));
        status::store(tx, &part, &told, now)?;
        if let Some(started) = started.filter(|_| marked && !known) {
            // Strictly before: a start in the mark's own millisecond may have been the one before it.
            devices::clear_restart_mark(tx, &part, started.saturating_sub(1))?;
        }
        if request.restart_answer_lost {
            devices::restart_untold(tx, &part)?;
        }
        status::retries(tx, part.id())
    };
    let wishes = context.store.write(write).await?;
    Ok(ReportResponse { retries: wishes.into_iter().filter_map(|wish| open_retry(wish, &status)).collect() })
}

/// An operator's wish, unless the device has reported that it carried it out.
fn open_retry((product, asked_at): (i32, Millis), status: &DeviceStatus) -> Option<UpdateRetry> {
    let edition = u64::try_from(asked_at).ok()?;
    let done = |update: &UpdateStatus| update.product == product && update.retried >= edition;
    (!status.updates.iter().any(done)).then_some(UpdateRetry { product, edition })
}

/// Whether a status that was kept, in hex, tells of this very start of the machine server.
fn tells_start_of(kept: &str, server: &ServerStatus) -> bool {
    let kept = hex::decode(kept).and_then(|bytes| DeviceStatus::decode(bytes.as_slice()).ok());
    kept.and_then(|kept| kept.server).is_some_and(|kept| (kept.started_at, kept.pid) == (server.started_at, server.pid))
}

/// When the machine server started, by this server's clock: a device's own may be anywhere, but it knows how long ago
/// that was.
fn started_at(status: &DeviceStatus, now: Millis) -> Option<Millis> {
    let started = status.server.as_ref()?.started_at.as_ref().map(millis)?;
    match status.device_time.as_ref().map(millis) {
        Some(device_now) => Some(now.saturating_sub(device_now.saturating_sub(started).max(0))),
        None => Some(started),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::timestamp;

    #[test]
    fn starts_are_told_in_this_servers_time() {
        let now = 1_800_000_000_000;
        let table = [
            // case                        started             device time         here
            ("clocks agree", Some(now - 500), Some(now), Some(now - 500)),
            ("the device's is years behind", Some(1_000), Some(61_000), Some(now - 60_000)),
            ("the device's is ahead", Some(now + 999_000), Some(now + 1_000_000), Some(now - 1_000)),
            ("the device's was set back since", Some(now), Some(now - 5_000), Some(now)),
            ("no device time", Some(now - 500), None, Some(now - 500)),
            ("not started", None, Some(now), None),
        ];
        for (case, started, device, here) in table {
            let server = ServerStatus { started_at: started.map(timestamp), ..ServerStatus::default() };
            let status =
                DeviceStatus { server: Some(server), device_time: device.map(timestamp), ..DeviceStatus::default() };
            assert_eq!(started_at(&status, now), here, "{case}");
        }
        assert_eq!(started_at(&DeviceStatus::default(), now), None);
    }
}
