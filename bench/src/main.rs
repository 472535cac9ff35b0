//! `make bench`: real runs of the release binary, each beside a limit measured in the same run, because
//! the machine's own speed varies. ONLY=<workload>,<workload> runs these, SCALE=0.1 a smaller size.
#![allow(clippy::print_stdout)] // its table is its output

mod clock;
mod control_plane;
mod fleet;
mod ground;
mod pgcopy;
mod plot;
mod python;
mod reconcile;
mod report;
mod runner_process;
mod search;
mod ticks;
mod workloads;

use anyhow::{Context, Result, ensure};

use crate::ground::Ground;
use crate::report::Measured;

#[tokio::main]
async fn main() -> Result<()> {
    let only = std::env::var("ONLY").unwrap_or_default();
    let scale: f64 =
        std::env::var("SCALE").unwrap_or_else(|_| "1".into()).parse().context("SCALE is a number")?;
    let batch_size: i32 = std::env::var("BATCH_SIZE")
        .unwrap_or_else(|_| "1000".into())
        .parse()
        .context("BATCH_SIZE is a number of rows")?;
    let only: Vec<&str> = only.split(',').filter(|name| !name.is_empty()).collect();
    let known: Vec<&str> = FAMILIES.iter().flat_map(|family| family.names()).collect();
    for name in &only {
        ensure!(known.contains(name), "no workload is called {name:?}: one of {}", known.join(", "));
    }

    let ground = Ground::prepare(scale).await?;
    let mut results = Vec::new();
    for family in FAMILIES {
        let wanted = |name: &&str| only.is_empty() || only.contains(name);
        let names: Vec<&'static str> = family.names().into_iter().filter(wanted).collect();
        results.extend(family.measure(&names, &ground, scale, batch_size).await?);
    }
    ground.clear().await?;
    report::write(&results)?;
    print!("{}", report::table(&results));
    Ok(())
}

/// Workloads that are measured in one way.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Family {
    Marts,
    Following,
    Fleets,
    Calls,
    Functions,
    Comparisons,
    Indexes,
    Codec,
}

const FAMILIES: [Family; 8] = [
    Family::Marts,
    Family::Following,
    Family::Fleets,
    Family::Calls,
    Family::Functions,
    Family::Comparisons,
    Family::Indexes,
    Family::Codec,
];

impl Family {
    fn names(self) -> Vec<&'static str> {
        match self {
            Self::Marts => workloads::ALL.iter().map(|workload| workload.name).collect(),
            Self::Following => ticks::NAMES.to_vec(),
            Self::Fleets => fleet::NAMES.to_vec(),
            Self::Calls => control_plane::NAMES.to_vec(),
            Self::Functions => python::NAMES.to_vec(),
            Self::Comparisons => reconcile::NAMES.to_vec(),
            Self::Indexes => search::NAMES.to_vec(),
            Self::Codec => vec![pgcopy::NAME],
        }
    }

    async fn measure(
        self,
        names: &[&'static str],
        ground: &Ground,
        scale: f64,
        batch_size: i32,
    ) -> Result<Vec<Measured>> {
        let mut results = Vec::new();
        for name in names.iter().copied() {
            if self != Self::Indexes {
                eprintln!("{name} …");
            }
            let measured = match self {
                Self::Marts => workloads::measure(name, ground, batch_size).await,
                Self::Following => ticks::measure(name, ground, scale).await,
                Self::Fleets => fleet::measure(name, ground).await,
                Self::Calls => control_plane::measure(name, ground).await,
                Self::Functions => python::measure(name, ground).await,
                Self::Comparisons => reconcile::measure(name, ground).await,
                Self::Codec => pgcopy::measure(ground, scale).await,
                // All at once, each named when its turn comes: their server starts once, and is warmed up once.
                Self::Indexes => return search::measure(names, ground, scale).await.context("search"),
            };
            results.push(measured.context(name)?);
        }
        Ok(results)
    }
}
