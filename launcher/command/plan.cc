// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include "graph/job_file.h"
#include "launcher/command/command.h"
#include "launcher/session.h"
#include "plan/show.h"

namespace sluice {
namespace {

struct Arguments {
  std::string job, config;
  int64_t devices = 0;
  bool json = false, text = false, coalesce = true;
};

int show_plan(const Arguments& args) {
  Config config = args.config.empty() ? default_config() : load_config(args.config, args.devices);
  if (args.config.empty() && args.devices > 1)
    throw Error(Code::usage, fmt::format("--devices {} without --config: nothing says how to use them", args.devices),
                {}, "write a file with [mesh] and pass it with --config");
  if (!args.coalesce) config.coalesce.value = false;
  Tables tables = builtin_tables(config.plugins);
  Plan plan = make_plan(load_job(args.job), config, {tables.ops, tables.moves});
  for (auto& plugin : tables.plugins) plan.notes.push_back({"plugin " + plugin.first, plugin.second});
  fmt::print("{}", args.text ? text_of(plan) : args.json ? plan_json(plan) : show(plan));
  return exit_ok;
}

}  // namespace

void add_plan(CLI::App& app, Action& action) {
  auto args = std::make_shared<Arguments>();
  auto* sub = app.add_subcommand("plan", "Explain what would run, where, and with how much memory");
  sub->add_option("job", args->job, "The job's file, from job.save()")->required();
  sub->add_option("--config", args->config, "The TOML file; without it, one device");
  sub->add_option("--devices", args->devices, "How many devices there are")->check(counts());
  auto* json = sub->add_flag("--json", args->json, "As JSON");
  sub->add_flag("--text", args->text, "The whole plan, in the form that parses back")->excludes(json);
  sub->add_flag("!--no-coalesce", args->coalesce, "One actor an op");
  sub->callback([args, &action] { action = [args] { return show_plan(*args); }; });
}

}  // namespace sluice
