//! `make bench`: real runs of the release binary, each beside a limit measured in the same run, because
//! the machine's own speed varies. ONLY=<workload> runs one, SCALE=0.1 a smaller size.
#![allow(clippy::print_stdout)] // its table is its output

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

use anyhow::{Context, Result};

#[tokio::main]
async fn main() -> Result<()> {
    let only = std::env::var("ONLY").ok().filter(|only| !only.is_empty());
    let scale: f64 =
        std::env::var("SCALE").unwrap_or_else(|_| "1".into()).parse().context("SCALE is a number")?;
    let batch_size: i32 = std::env::var("BATCH_SIZE")
        .unwrap_or_else(|_| "1000".into())
        .parse()
        .context("BATCH_SIZE is a number of rows")?;
    let chosen: Vec<_> = workloads::ALL
        .iter()
        .filter(|workload| only.as_deref().is_none_or(|only| only == workload.name))
        .collect();
    let with_codec = only.as_deref().is_none_or(|only| only == pgcopy::NAME);
    let wanted = |name: &&str| only.as_deref().is_none_or(|only| only == *name);
    let of_following: Vec<_> = ticks::NAMES.into_iter().filter(wanted).collect();
    let of_fleets: Vec<_> = fleet::NAMES.into_iter().filter(wanted).collect();
    let of_calls: Vec<_> = control_plane::NAMES.into_iter().filter(wanted).collect();
    let of_functions: Vec<_> = python::NAMES.into_iter().filter(wanted).collect();
    let of_comparisons: Vec<_> = reconcile::NAMES.into_iter().filter(wanted).collect();
    let of_indexes: Vec<_> = search::NAMES.into_iter().filter(wanted).collect();
    let known = workloads::ALL.iter().map(|workload| workload.name).chain(ticks::NAMES).chain(fleet::NAMES);
    let known = known
        .chain(control_plane::NAMES)
        .chain(python::NAMES)
        .chain(reconcile::NAMES)
        .chain(search::NAMES)
        .chain([pgcopy::NAME])
        .collect::<Vec<_>>()
        .join(", ");
    anyhow::ensure!(
        !chosen.is_empty()
            || !of_following.is_empty()
            || !of_fleets.is_empty()
            || !of_calls.is_empty()
            || !of_functions.is_empty()
            || !of_comparisons.is_empty()
            || !of_indexes.is_empty()
            || with_codec,
        "no workload is called {:?}: one of {known}",
        only.unwrap_or_default()
    );

    let ground = ground::Ground::prepare(scale).await?;
    let mut results = Vec::new();
    for workload in chosen {
        eprintln!("{} …", workload.name);
        results.push(workload.measure(&ground, batch_size).await.with_context(|| workload.name)?);
    }
    for name in of_following {
        eprintln!("{name} …");
        results.push(ticks::measure(name, &ground, scale).await.context(name)?);
    }
    for name in of_fleets {
        eprintln!("{name} …");
        results.push(fleet::measure(name, &ground).await.context(name)?);
    }
    for name in of_calls {
        eprintln!("{name} …");
        results.push(control_plane::measure(name, &ground).await.context(name)?);
    }
    for name in of_functions {
        eprintln!("{name} …");
        results.push(python::measure(name, &ground).await.context(name)?);
    }
    for name in of_comparisons {
        eprintln!("{name} …");
        results.push(reconcile::measure(name, &ground).await.context(name)?);
    }
    if !of_indexes.is_empty() {
        results.extend(search::measure(&of_indexes, &ground, scale).await.context("search")?);
    }
    if with_codec {
        eprintln!("{} …", pgcopy::NAME);
        results.push(pgcopy::measure(&ground, scale).await.context(pgcopy::NAME)?);
    }
    ground.clear().await?;
    report::write(&results)?;
    print!("{}", report::table(&results));
    Ok(())
}
