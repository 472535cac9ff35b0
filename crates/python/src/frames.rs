//! What travels between runner and worker: a header in JSON and a body of bytes, each with its length before it.

use serde_json::Value;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use vitrina_core::{Error, Result};

/// No header of an honest worker is longer.
const LONGEST_HEADER: u32 = 16 << 20;

#[derive(Debug)]
pub(crate) struct Frame {
    pub(crate) header: Value,
    pub(crate) body: Vec<u8>,
}

pub(crate) async fn send(
    pipe: &mut (impl AsyncWrite + Unpin),
    header: &Value,
    body: &[u8],
) -> std::io::Result<()> {
    let header = header.to_string().into_bytes();
    let mut opening = Vec::with_capacity(12 + header.len());
    opening.extend_from_slice(&u32::try_from(header.len()).unwrap_or(u32::MAX).to_le_bytes());
    opening.extend_from_slice(&(body.len() as u64).to_le_bytes());
    opening.extend_from_slice(&header);
    pipe.write_all(&opening).await?;
    pipe.write_all(body).await
}

/// `None` when the other side has ended between two frames or in the middle of one.
pub(crate) async fn receive(pipe: &mut (impl AsyncRead + Unpin), longest: u64) -> Result<Option<Frame>> {
    let mut lengths = [0; 12];
    if pipe.read_exact(&mut lengths).await.is_err() {
        return Ok(None);
    }
    let (header, body) = lengths.split_at(4);
    let header = u32::from_le_bytes(header.try_into().unwrap_or_default());
    let body = u64::from_le_bytes(body.try_into().unwrap_or_default());
    if header > LONGEST_HEADER {
        return Err(Error::bug("python.protocol", "the worker speaks another language"));
    }
    if body > longest {
        let message =
            format!("the function has returned {body} bytes, more than the {longest} a worker may hold");
        return Err(Error::fix("python.too_large", message)
            .hint("return fewer or smaller rows, or raise python.memory_limit"));
    }
    let (mut header, mut rows) =
        (vec![0; header as usize], vec![0; usize::try_from(body).unwrap_or(usize::MAX)]);
    if pipe.read_exact(&mut header).await.is_err() || pipe.read_exact(&mut rows).await.is_err() {
        return Ok(None);
    }
    let header = serde_json::from_slice(&header).map_err(|error| {
        Error::bug("python.protocol", "the worker speaks another language").caused_by(error)
    })?;
    Ok(Some(Frame { header, body: rows }))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[tokio::test]
    async fn a_frame_comes_as_it_was_sent() {
        let (mut here, mut there) = tokio::io::duplex(16);
        let sending = async { send(&mut here, &json!({"call": "x"}), b"rows").await.unwrap() };
        let (frame, ()) = tokio::join!(receive(&mut there, 100), sending);
        let frame = frame.unwrap().unwrap();
        assert_eq!((frame.header, frame.body), (json!({"call": "x"}), b"rows".to_vec()));
        drop(here);
        assert!(receive(&mut there, 100).await.unwrap().is_none());
    }

    #[tokio::test]
    async fn a_frame_that_would_not_fit_into_memory_is_refused_before_it_is_read() {
        let (mut here, mut there) = tokio::io::duplex(1 << 10);
        send(&mut here, &json!({}), &[0; 200]).await.unwrap();
        assert_eq!(receive(&mut there, 100).await.unwrap_err().code, "python.too_large");
        let (mut here, mut there) = tokio::io::duplex(1 << 10);
        here.write_all(b"Traceback (most recent call last):").await.unwrap();
        assert_eq!(receive(&mut there, 100).await.unwrap_err().code, "python.protocol");
    }
}
