//! The least a gRPC server can do: answer a call with its request. Loopback only. `echo_server [--port N]`
//!
//! Prints the address it listens on, then serves until it is ended.

use limits::{
    Msg, arg,
    pb::echo_server::{Echo, EchoServer},
};
use tonic::{
    Request, Response, Status,
    transport::{Server, server::TcpIncoming},
};

struct Echoing;

#[tonic::async_trait]
impl Echo for Echoing {
    async fn unary(&self, request: Request<Msg>) -> Result<Response<Msg>, Status> {
        Ok(Response::new(request.into_inner()))
    }
}

#[tokio::main(flavor = "multi_thread", worker_threads = 2)]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let address = ([127, 0, 0, 1], arg("port", 0u16)).into();
    let incoming = TcpIncoming::bind(address)?.with_nodelay(Some(true));
    println!("{}", incoming.local_addr()?);
    Server::builder().add_service(EchoServer::new(Echoing)).serve_with_incoming(incoming).await?;
    Ok(())
}
