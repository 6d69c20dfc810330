//! A way to the API server that can be cut and mended.

use std::net::Ipv4Addr;

use tokio::net::{TcpListener, TcpStream};
use tokio::task::{JoinHandle, JoinSet};

pub(crate) struct Relay {
    port: u16,
    target: u16,
    task: JoinHandle<()>,
}

impl Relay {
    pub(crate) async fn to(target: u16) -> Self {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
        Relay {
            port: listener.local_addr().unwrap().port(),
            target,
            task: tokio::spawn(serve(listener, target)),
        }
    }

    pub(crate) fn port(&self) -> u16 {
        self.port
    }

    /// Ends every connection and takes no new one.
    pub(crate) async fn cut(&mut self) {
        self.task.abort();
        let _ = (&mut self.task).await;
    }

    pub(crate) async fn mend(&mut self) {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, self.port)).await.unwrap();
        self.task = tokio::spawn(serve(listener, self.target));
    }
}

impl Drop for Relay {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn serve(listener: TcpListener, target: u16) {
    let mut connections = JoinSet::new();
    loop {
        let Ok((mut client, _)) = listener.accept().await else {
            return;
        };
        connections.spawn(async move {
            if let Ok(mut server) = TcpStream::connect((Ipv4Addr::LOCALHOST, target)).await {
                let _ = tokio::io::copy_bidirectional(&mut client, &mut server).await;
            }
        });
    }
}
