//! The statuses of a pipeline and of a run, as R-ST-1 and DESIGN §5 spell them.

use crate::words::words;

words! {
    /// What a pipeline is doing, as the API requests it and the runner carries it out.
    Status, "status" {
        Idle = "IDLE",
        RunRequested = "RUN_REQUESTED",
        Running = "RUNNING",
        PauseRequested = "PAUSE_REQUESTED",
        Paused = "PAUSED",
        Failed = "FAILED",
    }
}

impl Status {
    /// A run is open: requested, being executed, or on its way to a pause.
    pub const fn is_active(self) -> bool {
        matches!(self, Self::RunRequested | Self::Running | Self::PauseRequested)
    }

    /// A runner holds the lease.
    pub const fn is_leased(self) -> bool {
        matches!(self, Self::Running | Self::PauseRequested)
    }
}

words! {
    /// How one request's execution stands or ended.
    RunStatus, "run status" {
        Requested = "REQUESTED",
        Running = "RUNNING",
        Success = "SUCCESS",
        Failed = "FAILED",
        Paused = "PAUSED",
        Cancelled = "CANCELLED",
    }
}

impl RunStatus {
    pub const fn is_open(self) -> bool {
        matches!(self, Self::Requested | Self::Running)
    }
}
