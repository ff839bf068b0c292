//! A database under test, and short forms of what it is asked.

use std::{cell::RefCell, collections::HashMap, future::poll_fn, path::Path, sync::Arc, task::Poll, time::Duration};

use queen_fabric::rt::Executor;
use queen_log::{
    id::{PartitionId, QueueId, TenantId, Uuid},
    options::QueueOptions,
    read::{Read, ReadAnswer},
    row::{CursorRow, PartitionRow, QueueRow},
    store::{
        Admin, AdminDone, Append, Batch, Committed, Create, Created, CursorWrite, Done, Load, Loaded, StoreFailure,
        Work,
    },
};
use queen_store::{Database, DatabaseConfig, DatabaseSeed, Job, JobDone};

use crate::cluster::TestDatabase;

/// Whose everything is, unless a test says otherwise.
pub const TENANT: TenantId = Uuid([1; 16]);

/// Runs SQL beside the database under test and gives the first value of its first row.
type Beside = Box<dyn Fn(&str) -> String + Send>;

/// A database under test, used by one task.
pub struct Rig {
    /// The database.
    pub database: Database,
    last_job: RefCell<u64>,
    done: RefCell<HashMap<u64, Result<JobDone, StoreFailure>>>,
    beside: Beside,
    /// The prefix of tables' names.
    pub schema: &'static str,
}

impl Rig {
    /// A rig around a database.
    pub fn new(database: Database, beside: Beside, schema: &'static str) -> Self {
        Self { database, last_job: RefCell::new(0), done: RefCell::default(), beside, schema }
    }

    /// Runs a test on SQLite.
    pub fn on_sqlite(test: impl AsyncFnOnce(&Rig) + Send + 'static) {
        let dir = tempfile::tempdir().expect("a directory");
        let opened = DatabaseSeed::open(&DatabaseConfig::Sqlite, dir.path()).expect("it opens");
        let file = dir.path().join(queen_store::DATABASE_FILE);
        let beside: Beside = Box::new(move |sql| {
            let connection = rusqlite::Connection::open(&file).expect("it opens again");
            connection.busy_timeout(Duration::from_secs(10)).expect("a number");
            if sql.starts_with("SELECT") {
                let count: i64 = connection.query_row(sql, [], |row| row.get(0)).expect("a row");
                return count.to_string();
            }
            connection.execute_batch(sql).expect("SQL");
            String::new()
        });
        run(async move || test(&Rig::new(opened.seed.start(), beside, "")).await);
    }

    /// Runs a test on PostgreSQL.
    pub fn on_postgres(test: impl AsyncFnOnce(&Rig) + Send + 'static) {
        let database = TestDatabase::new();
        let config = DatabaseConfig::Postgres(Box::new(database.config()));
        let opened = DatabaseSeed::open(&config, Path::new("/nonexistent")).expect("it opens");
        assert!(opened.declarations.is_some(), "{:?}", opened.seed);
        let beside: Beside = Box::new(move |sql| database.sql(sql));
        run(async move || test(&Rig::new(opened.seed.start(), beside, "queen.")).await);
    }

    /// Starts a piece of work: its number.
    pub fn start(&self, job: Job) -> u64 {
        let mut last = self.last_job.borrow_mut();
        *last += 1;
        self.database.start(*last, job);
        *last
    }

    /// Waits for a job.
    pub async fn outcome(&self, job: u64) -> Result<JobDone, StoreFailure> {
        poll_fn(|cx| {
            loop {
                if let Some(outcome) = self.done.borrow_mut().remove(&job) {
                    return Poll::Ready(outcome);
                }
                match self.database.poll_done(cx) {
                    Poll::Ready(outcomes) => self.done.borrow_mut().extend(outcomes),
                    Poll::Pending => return Poll::Pending,
                }
            }
        })
        .await
    }

    /// Does a piece of work of the log.
    pub async fn run(&self, work: Work) -> Result<Done, StoreFailure> {
        match self.outcome(self.start(Job::Log(work))).await? {
            JobDone::Log(done) => Ok(*done),
            other => panic!("a job of the log was answered with {other:?}"),
        }
    }

    /// Commits a batch.
    pub async fn commit(&self, batch: Batch) -> Committed {
        match self.run(Work::Commit(batch)).await {
            Ok(Done::Committed(committed)) => committed,
            other => panic!("not committed: {other:?}"),
        }
    }

    /// Loads rows.
    pub async fn load(&self, load: Load) -> Loaded {
        match self.run(Work::Load(load)).await {
            Ok(Done::Loaded(loaded)) => loaded,
            other => panic!("not loaded: {other:?}"),
        }
    }

    /// Makes rows.
    pub async fn create(&self, creates: Vec<Create>) -> Vec<Created> {
        match self.run(Work::Create(creates)).await {
            Ok(Done::Created(created)) => created,
            other => panic!("not created: {other:?}"),
        }
    }

    /// Does what is rare.
    pub async fn admin(&self, admin: Admin) -> AdminDone {
        match self.run(Work::Admin(admin)).await {
            Ok(Done::Admin(done)) => done,
            other => panic!("not done: {other:?}"),
        }
    }

    /// Reads lists and counts.
    pub async fn read(&self, read: Read) -> ReadAnswer {
        match self.run(Work::Read(read)).await {
            Ok(Done::Read(answer)) => answer,
            other => panic!("not read: {other:?}"),
        }
    }

    /// Runs SQL beside it; `@` stands for the schema's prefix.
    pub fn sql(&self, sql: &str) {
        (self.beside)(&sql.replace('@', self.schema));
    }

    /// The number that a query beside it gives.
    pub fn count(&self, sql: &str) -> u64 {
        (self.beside)(&sql.replace('@', self.schema)).parse().expect("a number")
    }

    /// Makes a queue of a name, with defaults.
    pub async fn queue(&self, name: &str) -> QueueRow {
        let created = self.create(vec![queue(name)]).await;
        let Some(Created::Queue(row, _)) = created.into_iter().next() else { panic!("a queue") };
        row
    }

    /// Makes a queue with one partition.
    pub async fn partition(&self, name: &str) -> PartitionRow {
        let queue = self.queue(name).await;
        let created = self.create(vec![partition(queue.id, "Default")]).await;
        let Some(Created::Partition(row)) = created.into_iter().next() else { panic!("a partition") };
        row
    }

    /// Appends one segment and gives its stamp.
    pub async fn append(&self, partition: &PartitionRow, base: u64, next: u64) -> Option<i64> {
        let batch = Batch { appends: vec![append(partition, base, next)], ..Batch::default() };
        self.commit(batch).await.stamps[0]
    }

    /// Sends two segments without waiting between them, the second of which follows the first, and gives their stamps.
    pub async fn chain(&self, partition: &PartitionRow, ends: [u64; 3]) -> (Option<i64>, Option<i64>) {
        let (first, second) = self.start_chain(partition, ends);
        (self.appended(first).await, self.appended(second).await)
    }

    /// The same without waiting at all: their jobs.
    pub fn start_chain(&self, partition: &PartitionRow, [base, middle, next]: [u64; 3]) -> (u64, u64) {
        let first = append(partition, base, middle);
        let follows = Some(first.mark);
        let second = Append { follows, ..append(partition, middle, next) };
        let first = self.start(Job::Log(Work::Commit(Batch { appends: vec![first], ..Batch::default() })));
        let batch = Batch { behind: Some(first), appends: vec![second], ..Batch::default() };
        (first, self.start(Job::Log(Work::Commit(batch))))
    }

    /// Waits for a batch of one segment: its stamp.
    pub async fn appended(&self, job: u64) -> Option<i64> {
        match self.outcome(job).await {
            Ok(JobDone::Log(done)) => match *done {
                Done::Committed(committed) => committed.stamps[0],
                other => panic!("not committed: {other:?}"),
            },
            other => panic!("not committed: {other:?}"),
        }
    }

    /// A partition as it is now.
    pub async fn partition_now(&self, id: PartitionId) -> Option<PartitionRow> {
        match self.load(Load::PartitionById(id)).await {
            Loaded::PartitionById(found) => found.map(|(row, _, _)| row),
            other => panic!("{other:?}"),
        }
    }

    /// A cursor as it is now.
    pub async fn cursor_now(&self, partition: PartitionId, group: &str) -> Option<CursorRow> {
        match self.load(Load::Cursor { partition, group: group.into() }).await {
            Loaded::Cursor(cursor) => cursor,
            other => panic!("{other:?}"),
        }
    }
}

/// Runs a test on an executor and passes its panic on.
pub fn run<F: Future<Output = ()> + 'static>(test: impl FnOnce() -> F + Send + 'static) {
    let executor = Executor::spawn("store-test", None, Duration::ZERO, test).expect("an executor");
    executor.join().expect("the test holds");
}

/// A number that nothing else has.
fn number() -> u64 {
    use std::sync::atomic::{AtomicU64, Ordering};
    static LAST: AtomicU64 = AtomicU64::new(0);
    LAST.fetch_add(1, Ordering::Relaxed) + 1
}

/// An id that nothing else has.
pub fn id() -> Uuid {
    Uuid::v7(1_700_000_000_000, u128::from(number()))
}

/// A queue to be made, with defaults.
pub fn queue(name: &str) -> Create {
    Create::Queue {
        id: id(),
        tenant: TENANT,
        name: name.into(),
        namespace: "ns".into(),
        task: "task".into(),
        options: QueueOptions::implicit(),
    }
}

/// A partition to be made.
pub fn partition(queue: QueueId, name: &str) -> Create {
    Create::Partition { id: id(), queue, name: name.into() }
}

/// A segment to be appended.
pub fn append(partition: &PartitionRow, base: u64, next: u64) -> Append {
    Append {
        partition: partition.id,
        queue: partition.queue,
        base,
        next,
        floor_us: 0,
        ahead_us: 5,
        mark: number().cast_signed(),
        follows: None,
        hashes: base.to_le_bytes().to_vec(),
        data: format!("from {base} to {next}").into_bytes(),
    }
}

/// A cursor to be made, at an offset.
pub fn cursor(partition: &PartitionRow, group: &str, next: u64) -> CursorWrite {
    CursorWrite {
        partition: partition.id,
        group: Arc::from(group),
        expect: None,
        version: 1,
        needs_append: None,
        next,
        run_end: next,
        lease: None,
        retries: 0,
        consumed: next,
    }
}
