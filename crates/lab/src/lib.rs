//! MEASURES: real servers as child processes, faults, load, rivals, and the shipped balancer.
//!
//! All processes listen on loopback only, on ports that no other lab has. They end with the process
//! that started them, even if that process is killed.

pub mod balancer;
pub mod bench;
mod cgroup;
pub mod chaos;
pub mod compat;
pub mod config;
pub mod galera;
pub mod group_replication;
mod keepalived;
mod lab;
pub mod mariadb;
pub mod mysql;
mod network;
pub mod new_connections;
pub mod pooler;
pub mod port;
pub mod postgres;
mod process;
pub mod procfs;
mod program;
mod promotion;
pub mod read_probe;
mod replication;
pub mod ring;
pub mod rival;
pub mod rootfs;
mod sbtest;
pub mod scenario;
mod scratch;
pub mod server;
pub mod stop;
pub mod sysbench;
pub mod table;
mod template;
mod tool;
mod wait;
pub mod web;
pub mod web_probe;
pub mod write_probe;
pub mod wrk;

pub use balancer::Balancer;
pub use config::Service;
pub use galera::{GaleraCluster, GaleraOptions};
pub use group_replication::{GroupOptions, GroupReplication};
pub use lab::Lab;
pub use mariadb::{MariadbCluster, MariadbOptions};
pub use mysql::{MysqlCluster, MysqlOptions};
pub use new_connections::{Greeting, NewConnections, NewcomersReport};
pub use pooler::{PoolMode, Pooler, PoolerKind, PoolerOptions};
pub use port::free_port;
pub use postgres::{PostgresCluster, PostgresOptions};
pub use process::{SchedulingGroup, own_uid, raise_open_files_limit};
pub use promotion::Promotion;
pub use read_probe::{ReadProbe, ReadProbeOptions};
pub use ring::{Ring, RingOptions};
pub use rival::{Haproxy, MysqlRouter, Nginx, Odyssey, Pgbouncer, Pgpool};
pub use scenario::{ClusterKind, Scenario};
pub use scratch::home;
pub use server::{Role, Server};
pub use sysbench::{Driver, Sysbench, SysbenchReport};
pub use wait::eventually;
pub use write_probe::{WriteLog, WriteProbe, WriteProbeOptions};
pub use wrk::Wrk;
