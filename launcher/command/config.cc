// SPDX-License-Identifier: Apache-2.0
#include "config/config.h"

#include <fmt/format.h>

#include "launcher/command/command.h"

namespace sluice {
namespace {

struct Arguments {
  std::string file;
  int64_t devices = 0;
};

void add_file(CLI::App* sub, const std::shared_ptr<Arguments>& args) {
  sub->add_option("file", args->file, "The TOML file")->required();
  sub->add_option("--devices", args->devices, "How many devices there are; else as many as the axes need")
      ->check(counts());
}

int check_file(const Arguments& args) {
  Config config = load_config(args.file, args.devices);
  int64_t devices = devices_of(config);
  fmt::print("{}: right, for {} device{}\n", args.file, devices, devices == 1 ? "" : "s");
  return exit_ok;
}

}  // namespace

void add_config(CLI::App& app, Action& action) {
  auto args = std::make_shared<Arguments>();
  auto* config = app.add_subcommand("config", "Check, complete or explain the TOML file");
  config->require_subcommand(0, 1);
  auto* checked = config->add_subcommand("check", "Say whether a file is right");
  add_file(checked, args);
  checked->callback([args, &action] { action = [args] { return check_file(*args); }; });
  auto* print = config->add_subcommand("print", "Print a file completed, with the origin of each value");
  add_file(print, args);
  print->callback([args, &action] {
    action = [args] {
      fmt::print("{}", text_of(load_config(args->file, args->devices)));
      return exit_ok;
    };
  });
  config->add_subcommand("schema", "Print every key with its type, default and meaning")->callback([&action] {
    action = [] {
      fmt::print("{}", config_schema());
      return exit_ok;
    };
  });
}

}  // namespace sluice
