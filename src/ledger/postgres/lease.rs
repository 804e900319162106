//! How long this process may run calls. Another replica settles the calls of a process that it has
//! not seen for [`LEASE`]; from then on, the process must not run them.

use std::time::{Duration, Instant};

use parking_lot::Mutex;
use rustix::time::{ClockId, clock_gettime};

/// A replica without a commit for this long has ended for the others, even if its lock is held: its
/// machine may be frozen or cut off.
pub(super) const LEASE: Duration = Duration::from_secs(15);
/// A replica whose lock is free has ended if it does not come back within this time. A commit that
/// takes too long frees the lock after 5 s already. The other half is for the next connection, so
/// that an overloaded database does not end replicas that run.
pub(super) const GRACE: Duration = Duration::from_secs(10);
/// A replica without other commits commits this often.
pub(super) const HEARTBEAT: Duration = Duration::from_secs(1);
/// How long calls wait for free units of other replicas. A replica that stays silent for longer hands
/// out none: its lease has ended.
pub(super) const RECALL_TIME: Duration = GRACE;
/// The process counts the grace shorter than the others do.
const MARGIN: Duration = Duration::from_secs(1);

/// The lease of this process.
pub(super) struct Lease(Mutex<Times>);

/// A time since the boot of the machine. Its clock runs on while the machine is suspended, as do the
/// clocks of the other replicas.
#[derive(Debug, Clone, Copy)]
pub(super) struct BootTime(Duration);

impl BootTime {
    pub(super) fn now() -> Self {
        let now = clock_gettime(ClockId::Boottime);
        Self(Duration::try_from(now).unwrap_or_default())
    }

    fn elapsed(self) -> Duration {
        Self::now().0.saturating_sub(self.0)
    }
}

struct Times {
    /// When the last successful commit began.
    renewed: BootTime,
    /// When the process got its current id. Calls that began before may be settled.
    since: Instant,
}

impl Lease {
    /// A lease from now on.
    pub(super) fn new() -> Self {
        Self(Mutex::new(Times {
            renewed: BootTime::now(),
            since: Instant::now(),
        }))
    }

    /// Notes that a commit that began at this time has succeeded.
    pub(super) fn renew(&self, began: BootTime) {
        self.0.lock().renewed = began;
    }

    /// Notes that the process goes on under a new id.
    pub(super) fn restart(&self) {
        self.0.lock().since = Instant::now();
    }

    /// Whether no other replica can have settled a call that began at this time. The process cannot
    /// know whether it still has its lock, so the grace counts.
    pub(super) fn covers(&self, began: Instant) -> bool {
        let times = self.0.lock();
        began >= times.since && times.renewed.elapsed() < GRACE - MARGIN
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;
    use std::sync::Arc;

    use uuid::Uuid;

    use super::super::address::Address;
    use super::super::batch::{Batch, BlockChanges};
    use super::super::open::open_database;
    use super::super::replica::Replica;
    use super::super::servers::Servers;
    use super::super::test_server::TestServer;
    use super::*;

    /// When a replica that has ended for the others committed last.
    fn long_ago() -> BootTime {
        BootTime(BootTime::now().0.saturating_sub(GRACE))
    }

    #[test]
    fn lease_ends_without_commits() {
        let lease = Lease::new();
        let now = Instant::now();
        assert!(lease.covers(now));
        lease.renew(long_ago());
        assert!(!lease.covers(now));
        lease.renew(BootTime::now());
        assert!(lease.covers(now));
    }

    #[test]
    fn calls_under_an_earlier_id_are_not_covered() {
        let lease = Lease::new();
        let began = Instant::now();
        lease.restart();
        lease.renew(BootTime::now());
        assert!(!lease.covers(began));
        assert!(lease.covers(Instant::now()));
    }

    #[tokio::test]
    async fn commit_renews_the_lease_if_it_succeeds() {
        let Some(server) = TestServer::shared() else {
            return;
        };
        let url = server.create_ledger_database().await;
        let address = Address::parse(&url, Path::new("/")).unwrap();
        let servers = Arc::new(Servers::new(address));
        let pool = open_database(&servers).await.unwrap();
        let lease = Arc::new(Lease::new());
        let mut replica = Replica::new(servers, pool.clone(), Uuid::now_v7(), lease.clone());
        replica.register().await.unwrap();
        let nothing = (Batch::default(), BlockChanges::default());
        let commit = async |replica: &mut Replica| {
            lease.renew(long_ago());
            assert!(!replica.has_lease());
            let committed = replica.commit(0, &nothing.0, &nothing.1, None).await;
            assert_eq!(replica.has_lease(), committed.is_ok());
            committed.is_ok()
        };
        assert!(commit(&mut replica).await);
        assert!(
            commit(&mut replica).await,
            "each commit has a number of its own"
        );

        // The server refuses the commit.
        let run = async |sql: &'static str| sqlx::query(sql).execute(&pool).await.unwrap();
        run("alter function commit_batch_1 rename to away").await;
        assert!(!commit(&mut replica).await);
        assert!(replica.is_connected());
        run("alter function away rename to commit_batch_1").await;
        assert!(commit(&mut replica).await);

        // There is no answer.
        let cut = "select pg_terminate_backend(pid) from pg_stat_activity where datname = current_database() \
            and query like '%commit_batch_1%' and pid <> pg_backend_pid()";
        run(cut).await;
        assert!(!commit(&mut replica).await);
        assert!(!replica.is_connected());
        assert!(!commit(&mut replica).await, "without a connection");
        let attached = replica.reattach().await.unwrap();
        assert_ne!(attached.open_commit_succeeded, Some(true));
        assert!(!attached.was_settled && replica.has_lease());
        assert!(commit(&mut replica).await);
        let attached = replica.reattach().await.unwrap();
        assert_eq!(attached.open_commit_succeeded, None);
        assert!(commit(&mut replica).await);
    }
}
