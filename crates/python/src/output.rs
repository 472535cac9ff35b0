//! What a worker prints, as lines of the run's log.

use std::io::ErrorKind;
use std::os::fd::AsFd;

use tokio::net::unix::pipe::Receiver;

/// Where lines come from that functions have written: they may hold values of rows, and not everybody is shown them.
pub const PRINTED: &str = "vitrina_python::printed";

/// A longer line is cut.
const LONGEST: usize = 8 << 10;
/// What one batch may print to each of the two; the rest is counted.
const LINES: usize = 1000;

const READS: usize = 128;

#[derive(Debug, Default)]
pub(crate) struct Output {
    begun: [Vec<u8>; 2],
    /// The function has closed them.
    closed: [bool; 2],
    lines: [usize; 2],
}

impl Output {
    /// Tells what is known to be there, of one that prints without end no more than a pipe holds.
    pub(crate) fn drain(&mut self, printed: &[Receiver; 2]) {
        self.read(|place, bytes| printed[place].try_read(bytes));
    }

    /// Tells what is there, whether or not the runtime has heard of it yet: a function has ended.
    pub(crate) fn drain_all(&mut self, printed: &[Receiver; 2]) {
        self.read(|place, bytes| Ok(nix::unistd::read(printed[place].as_fd(), bytes)?));
        self.end();
    }

    fn read(&mut self, from: impl Fn(usize, &mut [u8]) -> std::io::Result<usize>) {
        let mut bytes = [0; 8 << 10];
        for place in 0..self.begun.len() {
            for _ in 0..READS {
                match from(place, &mut bytes) {
                    Ok(0) => {
                        self.closed[place] = true;
                        break;
                    }
                    Ok(read) => self.take(place, &bytes[..read]),
                    Err(error) if error.kind() == ErrorKind::Interrupted => {}
                    Err(_) => break,
                }
            }
        }
    }

    /// Waits until something is printed.
    pub(crate) async fn printed(&self, printed: &[Receiver; 2]) {
        let readable = async |place: usize| match self.closed[place] {
            true => std::future::pending().await,
            false => printed[place].readable().await.ok(),
        };
        tokio::select! {
            _ = readable(0) => {}
            _ = readable(1) => {}
        }
    }

    /// A batch is over: what it has printed without an end is a line as well.
    fn end(&mut self) {
        for place in 0..self.begun.len() {
            let line = std::mem::take(&mut self.begun[place]);
            if !line.is_empty() {
                self.tell(place, &line);
            }
        }
        let more: usize =
            std::mem::take(&mut self.lines).iter().map(|lines| lines.saturating_sub(LINES)).sum();
        if more > 0 {
            tracing::warn!(lines = more, "the function has printed more lines, which are left out");
        }
    }

    fn take(&mut self, place: usize, bytes: &[u8]) {
        for byte in bytes {
            match byte {
                b'\n' => {
                    let line = std::mem::take(&mut self.begun[place]);
                    self.tell(place, &line);
                }
                _ if self.begun[place].len() < LONGEST => self.begun[place].push(*byte),
                _ => {}
            }
        }
    }

    fn tell(&mut self, place: usize, line: &[u8]) {
        self.lines[place] += 1;
        if self.lines[place] <= LINES {
            let line = String::from_utf8_lossy(line);
            tracing::info!(target: PRINTED, "python: {}", line.trim_end());
        }
    }
}
