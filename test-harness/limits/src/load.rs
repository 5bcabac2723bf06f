//! A closed loop of gRPC calls on many connections: each waits for its answer before it asks again.
//!
//! What is reported is calls per second of the *server's* CPU time, so that the load generator, which shares the
//! machine, does not count.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::Duration,
};

use prost::Message;
use tonic::{
    Request,
    client::Grpc,
    codegen::http::uri::PathAndQuery,
    metadata::{Ascii, MetadataValue},
    transport::{Channel, Endpoint},
};
use tonic_prost::ProstCodec;

use crate::CpuTime;

/// Connections, as the figures are defined.
pub const CONNECTIONS: usize = 64;

/// What one connection sends, over and over.
pub struct Loop<Q> {
    /// Token for the `authorization` header.
    pub bearer: Option<String>,
    /// Makes the n-th request of this connection.
    pub request: Box<dyn Fn(u64) -> Q + Send>,
}

/// What came out.
#[derive(Clone, Copy, Debug)]
pub struct Outcome {
    /// Calls answered while counting.
    pub calls: u64,
    /// CPU seconds of the server meanwhile.
    pub server_cpu_s: f64,
    /// Length of the count in seconds.
    pub wall_s: f64,
}

impl Outcome {
    /// The figure.
    #[must_use]
    pub fn per_cpu_second(&self) -> f64 {
        self.calls as f64 / self.server_cpu_s.max(1e-9)
    }
}

/// Runs every loop on a connection of its own and counts what the server `pid` used: for `length`, after a `warm_up` in
/// which caches are filled and the processor gets its clock. `at_edge` is called when counting begins and when it ends.
///
/// # Errors
/// The first call that fails ends the run: a figure with errors in it is no figure.
pub async fn run<Q, A>(
    url: &str,
    path: &'static str,
    loops: Vec<Loop<Q>>,
    (warm_up, length): (Duration, Duration),
    pid: u32,
    mut at_edge: impl AsyncFnMut(),
) -> Result<Outcome, String>
where
    Q: Message + 'static,
    A: Message + Default + 'static,
{
    let (counting, over) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicBool::new(false)));
    let calls = Arc::new(AtomicU64::new(0));
    let mut tasks = tokio::task::JoinSet::new();
    for Loop { bearer, request } in loops {
        let endpoint = Endpoint::from_shared(url.to_owned()).map_err(|error| error.to_string())?.tcp_nodelay(true);
        let channel: Channel = endpoint.connect().await.map_err(|error| format!("{url}: {error:?}"))?;
        let bearer: Option<MetadataValue<Ascii>> = match bearer {
            Some(token) => Some(format!("Bearer {token}").parse().map_err(|_| "a token that is no header".to_owned())?),
            None => None,
        };
        let (counting, over, calls) = (Arc::clone(&counting), Arc::clone(&over), Arc::clone(&calls));
        tasks.spawn(async move {
            let mut client = Grpc::new(channel);
            for number in 0.. {
                if over.load(Ordering::Relaxed) {
                    break;
                }
                let mut call = Request::new(request(number));
                if let Some(bearer) = &bearer {
                    call.metadata_mut().insert("authorization", bearer.clone());
                }
                client.ready().await.map_err(|error| format!("{path}: {error:?}"))?;
                let codec: ProstCodec<Q, A> = ProstCodec::default();
                let answer = client.unary(call, PathAndQuery::from_static(path), codec).await;
                answer.map_err(|status| format!("{path}: {status}"))?;
                if counting.load(Ordering::Relaxed) {
                    calls.fetch_add(1, Ordering::Relaxed);
                }
            }
            Ok::<(), String>(())
        });
    }
    tokio::time::sleep(warm_up).await;
    at_edge().await;
    let (cpu, begin) = (CpuTime::of(pid), tokio::time::Instant::now());
    counting.store(true, Ordering::Relaxed);
    tokio::time::sleep(length).await;
    counting.store(false, Ordering::Relaxed);
    let (server_cpu_s, wall_s) = (cpu.seconds(), begin.elapsed().as_secs_f64());
    at_edge().await;
    over.store(true, Ordering::Relaxed);
    while let Some(ended) = tasks.join_next().await {
        ended.map_err(|error| error.to_string())??;
    }
    Ok(Outcome { calls: calls.load(Ordering::Relaxed), server_cpu_s, wall_s })
}
