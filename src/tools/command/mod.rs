//! stub
use super::{BuildContext, ConfigFault, Runner};
use std::sync::Arc;
#[derive(serde::Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Config {
    pub command: Vec<String>,
}
pub fn build(_c: Config, _x: &BuildContext<'_>) -> Result<(Arc<dyn Runner>, Vec<ConfigFault>), Vec<ConfigFault>> {
    Err(vec![])
}
