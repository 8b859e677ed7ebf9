//! The product on the real default model, which is fetched once by the same
//! code that a user's first run goes through.

mod golden;
mod main_job;
mod model;
mod modes;
mod reload;
