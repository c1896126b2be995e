//! A connection that knows whether a large value went through it.
//!
//! The driver's buffers grow to the largest message of a connection and never shrink: each connection that
//! carried a large state would take its size for as long as it is open. So such connections are closed
//! once nobody uses them, and the next one begins with small buffers.

use std::{
    ops::{Deref, DerefMut},
    sync::atomic::{AtomicBool, Ordering},
    time::Duration,
};

use bytes::BytesMut;
use deadpool::managed::{self, Metrics, RecycleResult};
use deadpool_postgres::{ClientWrapper, Manager};
use tokio_postgres::{
    Error, Row, ToStatement,
    types::{Format, IsNull, ToSql, Type},
};

use crate::checkpoint::codec;

/// A connection from a pool.
pub(crate) type Object = managed::Object<Connections>;

/// The size of a message from which its connection is not retained. The driver has up to three buffers of
/// twice that size for each.
const LARGE: usize = 256 << 10;
/// How often idle connections are looked through.
const SWEEP: Duration = Duration::from_secs(5);

type Params<'a> = &'a [&'a (dyn ToSql + Sync)];

/// Opens connections.
pub(crate) struct Connections {
    pub(crate) manager: Manager,
    /// In which form values are written.
    pub(crate) format: codec::Format,
}

impl managed::Manager for Connections {
    type Type = Client;
    type Error = Error;

    async fn create(&self) -> Result<Client, Error> {
        Ok(Client {
            driver: self.manager.create().await?,
            is_large: AtomicBool::new(false),
            format: self.format,
        })
    }

    async fn recycle(&self, client: &mut Client, metrics: &Metrics) -> RecycleResult<Error> {
        self.manager.recycle(&mut client.driver, metrics).await
    }

    fn detach(&self, client: &mut Client) {
        self.manager.detach(&mut client.driver);
    }
}

/// A connection. What it offers is the driver's; its own methods measure besides.
pub(crate) struct Client {
    driver: ClientWrapper,
    is_large: AtomicBool,
    /// In which form values are written.
    pub(crate) format: codec::Format,
}

impl Client {
    /// Takes note of the size of a message: of those that its own methods do not see, since they go through a
    /// transaction.
    pub(crate) fn carries(&self, bytes: usize) {
        if bytes > LARGE {
            self.is_large.store(true, Ordering::Relaxed);
        }
    }

    fn receives(&self, rows: &[Row]) {
        self.carries(rows.iter().map(Row::raw_size_bytes).max().unwrap_or(0));
    }

    pub(crate) async fn query<T>(&self, text: &T, params: Params<'_>) -> Result<Vec<Row>, Error>
    where
        T: ?Sized + ToStatement,
    {
        let measured = self.measured(params);
        let rows = self.driver.query(text, &all(&measured)).await?;
        self.receives(&rows);
        Ok(rows)
    }

    pub(crate) async fn query_one<T>(&self, text: &T, params: Params<'_>) -> Result<Row, Error>
    where
        T: ?Sized + ToStatement,
    {
        let measured = self.measured(params);
        let row = self.driver.query_one(text, &all(&measured)).await?;
        self.carries(row.raw_size_bytes());
        Ok(row)
    }

    pub(crate) async fn query_opt<T>(
        &self,
        text: &T,
        params: Params<'_>,
    ) -> Result<Option<Row>, Error>
    where
        T: ?Sized + ToStatement,
    {
        let measured = self.measured(params);
        let row = self.driver.query_opt(text, &all(&measured)).await?;
        self.receives(row.as_slice());
        Ok(row)
    }

    pub(crate) async fn execute<T>(&self, text: &T, params: Params<'_>) -> Result<u64, Error>
    where
        T: ?Sized + ToStatement,
    {
        let measured = self.measured(params);
        self.driver.execute(text, &all(&measured)).await
    }

    fn measured<'a>(&'a self, params: Params<'a>) -> Vec<Measured<'a>> {
        let one = |value| Measured {
            value,
            client: self,
        };
        params.iter().copied().map(one).collect()
    }
}

impl Deref for Client {
    type Target = ClientWrapper;

    fn deref(&self) -> &ClientWrapper {
        &self.driver
    }
}

impl DerefMut for Client {
    fn deref_mut(&mut self) -> &mut ClientWrapper {
        &mut self.driver
    }
}

/// A parameter whose size is taken note of when it is written.
struct Measured<'a> {
    value: &'a (dyn ToSql + Sync),
    client: &'a Client,
}

fn all<'a>(measured: &'a [Measured<'a>]) -> Vec<&'a (dyn ToSql + Sync)> {
    let one = |one: &'a Measured<'a>| one as &(dyn ToSql + Sync);
    measured.iter().map(one).collect()
}

impl std::fmt::Debug for Measured<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.value.fmt(f)
    }
}

impl ToSql for Measured<'_> {
    fn to_sql(
        &self,
        ty: &Type,
        out: &mut BytesMut,
    ) -> Result<IsNull, Box<dyn std::error::Error + Sync + Send>> {
        self.to_sql_checked(ty, out)
    }

    fn accepts(_: &Type) -> bool {
        // The value decides when it is written.
        true
    }

    fn to_sql_checked(
        &self,
        ty: &Type,
        out: &mut BytesMut,
    ) -> Result<IsNull, Box<dyn std::error::Error + Sync + Send>> {
        let is_null = self.value.to_sql_checked(ty, out)?;
        // The whole message so far.
        self.client.carries(out.len());
        Ok(is_null)
    }

    fn encode_format(&self, ty: &Type) -> Format {
        self.value.encode_format(ty)
    }
}

/// Closes idle connections that carried something large or are older than `age`, as long as the pool lives.
pub(super) fn sweep(pool: &managed::Pool<Connections>, age: Duration) {
    let weak = pool.weak();
    tokio::spawn(async move {
        loop {
            tokio::time::sleep(SWEEP).await;
            let Some(pool) = weak.upgrade() else {
                return;
            };
            pool.retain(|client, metrics| {
                !client.is_large.load(Ordering::Relaxed) && metrics.age() < age
            });
        }
    });
}
