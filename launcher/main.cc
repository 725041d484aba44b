// SPDX-License-Identifier: Apache-2.0
// The command `sluice`. Everything that goes wrong is one message: what, where, why, next; the cause comes last.
#include <fmt/format.h>

#include <algorithm>
#include <new>

#include "base/error.h"
#include "config/config.h"
#include "launcher/command/command.h"

namespace sluice {
namespace {

constexpr const char* later[] = {"top", "simulate", "checkpoint", "trace", "doctor"};

int refuse(const std::string& message, const std::string& next) {
  fmt::print(stderr, "sluice: error: {}\n", message);
  if (!next.empty()) fmt::print(stderr, "  next: {}\n", next);
  return exit_usage;
}

// The subcommand that was being parsed when the error came.
const CLI::App* innermost(const CLI::App* app) {
  for (auto called = app->get_subcommands(); !called.empty(); called = app->get_subcommands()) app = called.front();
  return app;
}

std::string help_of(const CLI::App& app) {
  auto* at = innermost(&app);
  std::string words = at == &app ? "" : at->get_name() + " ";
  if (at != &app && at->get_parent() != &app) words = at->get_parent()->get_name() + " " + words;
  return "see: sluice " + words + "--help";
}

// A word that the parser did not take: the nearest flag or subcommand.
int refuse_word(const CLI::App& app, const std::string& word) {
  auto* at = innermost(&app);
  if (at == &app && std::find(std::begin(later), std::end(later), word) != std::end(later))
    return refuse(fmt::format("'{}' is not supported yet", word), help_of(app));
  std::vector<std::string> names;
  for (auto* option : at->get_options())
    for (auto& name : option->get_lnames()) names.push_back("--" + name);
  for (auto* sub : at->get_subcommands({})) names.push_back(sub->get_name());
  std::string near = nearest(word.substr(0, word.find('=')), names);
  std::string next = near.empty() ? help_of(app) : fmt::format("did you mean '{}'?", near);
  return refuse(fmt::format("{} '{}'", word.starts_with("-") ? "unknown flag" : "unexpected word", word), next);
}

int refuse_parse(const CLI::App& app, const CLI::ParseError& error) {
  auto rest = app.remaining(true);
  if (dynamic_cast<const CLI::ExtrasError*>(&error) && !rest.empty()) return refuse_word(app, rest.front());
  std::string why = error.what();
  std::replace(why.begin(), why.end(), '\n', ' ');
  return refuse(why, help_of(app));
}

int run(int argc, char** argv) {
  CLI::App app{"One model and one file become one plan, and actors run it."};
  app.name("sluice");
  app.set_version_flag("--version", SLUICE_VERSION);
  app.require_subcommand(0, 1);
  Action action;
  add_plan(app, action);
  add_run(app, action);
  add_config(app, action);
  add_bench(app, action);
  add_cluster(app, action);
  add_jobs(app, action);
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    if (error.get_exit_code() == 0) return app.exit(error);  // --help, --version
    return refuse_parse(app, error);
  }
  if (!action) return refuse("a subcommand is missing", help_of(app));
  return action();
}

}  // namespace
}  // namespace sluice

int main(int argc, char** argv) {
  using namespace sluice;
  try {
    return run(argc, argv);
  } catch (const Error& error) {
    fmt::print(stderr, "sluice: error: {}\n", error.what());
    if (dynamic_cast<const Unreachable*>(&error)) return exit_unreachable;
    if (error.code() == Code::cancelled) return exit_interrupted;
    return error.code() == Code::usage ? exit_usage : exit_failed;
  } catch (const std::bad_alloc&) {
    fmt::print(stderr, "sluice: error: there is not enough memory\n");
  } catch (const std::exception& error) {
    fmt::print(stderr, "sluice: error: {}\n", error.what());
  }
  return exit_failed;
}
