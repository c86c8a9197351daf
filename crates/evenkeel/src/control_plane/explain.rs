//! Explains the routing of a statement, based on the current roles and the known catalog.

use std::sync::Arc;

use evenkeel_config::plan::SqlProtocol;
use evenkeel_proxy::mysql_lexer_modes;
use evenkeel_proxy::server_info::Databases;
use evenkeel_sql::catalog::Catalog;

use super::ControlPlane;
use super::service::ManagedService;
use crate::explain::{ExplainContext, ObjectInfo, explain, explain_route, find_service};
use crate::status::{Explanation, Question};

impl ControlPlane {
    pub(super) fn explain(&self, question: &Question) -> Result<Explanation, String> {
        let plans = self.services.iter().map(|service| &service.plan);
        if let Some(explained) = explain_route(question, plans.clone()) {
            return explained;
        }
        let (plan, settings) = find_service(plans, question.service.as_deref())?;
        let mut services = self.services.iter();
        let found = services.find(|service| service.plan.name == plan.name);
        let Some(service) = found else {
            return Err(format!("service {:?} was removed", plan.name));
        };
        let snapshot = service.service.snapshot();
        let database = snapshot.database();
        let replicas = database
            .map_or(&[][..], |database| &database.replicas)
            .iter()
            .enumerate();
        let context = ExplainContext {
            service: plan,
            database: settings,
            primary: database.and_then(|database| database.primary),
            replicas: replicas
                .filter_map(|(index, is_replica)| is_replica.then_some(index))
                .collect(),
            modes: mysql_lexer_modes(&service.service).unwrap_or_default(),
        };
        match settings.protocol {
            SqlProtocol::Mysql => explain_mysql(service, question, &context),
            SqlProtocol::Postgres => explain_postgres(service, question, &context),
        }
    }
}

/// Explains a statement of PostgreSQL, with the catalog of the database that the question names.
fn explain_postgres(
    service: &ManagedService,
    question: &Question,
    context: &ExplainContext<'_>,
) -> Result<Explanation, String> {
    let loaded = match &service.server_info {
        Some(server_info) => read_catalog(server_info.databases(), question.database.as_deref()),
        None => Err("no account configured to read it".to_owned()),
    };
    let known = match &loaded {
        Ok((name, catalog)) => ObjectInfo::Catalog(name, catalog),
        Err(why) => ObjectInfo::Unavailable(why.clone()),
    };
    explain(question, context, &known)
}

/// Explains a statement of MySQL. One reading covers the routines of all schemas.
fn explain_mysql(
    service: &ManagedService,
    question: &Question,
    context: &ExplainContext<'_>,
) -> Result<Explanation, String> {
    let server_info = service.server_info.as_ref();
    let routines = server_info.and_then(|server_info| server_info.routines());
    let known = match &routines {
        Some(routines) => ObjectInfo::Routines(routines),
        None => ObjectInfo::Unavailable("not loaded yet, try again shortly".to_owned()),
    };
    explain(question, context, &known)
}

/// Returns the name and the catalog of the selected database, or the reason why there is none.
fn read_catalog(
    databases: &Databases,
    wanted: Option<&str>,
) -> Result<(String, Arc<Catalog>), String> {
    let all = databases.all();
    let name = match (wanted, all.as_slice()) {
        (Some(wanted), _) => wanted.to_owned(),
        (None, [only]) => only.name().to_owned(),
        (None, []) => return Err("no client has used a database yet".to_owned()),
        (None, _) => {
            return Err("several databases are in use, choose one with --database".to_owned());
        }
    };
    // From now on the catalog is read, as if a client used the database.
    let catalog = databases
        .get_or_add(&name)
        .and_then(|database| database.catalog());
    let catalog = catalog
        .ok_or_else(|| format!("catalog of database {name:?} not loaded yet, try again shortly"))?;
    Ok((name, catalog))
}
