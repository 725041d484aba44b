// SPDX-License-Identifier: Apache-2.0
#include "kernels/optimizer.h"

namespace sluice::ops {
namespace {

constexpr AttrDef attrs[] = {
    {AttrDef::real, "lr", "The learning rate.", "0.001"},
    {AttrDef::real, "beta1", "How much of the mean gradient stays.", "0.9"},
    {AttrDef::real, "beta2", "How much of the mean squared gradient stays.", "0.999"},
    {AttrDef::real, "eps", "Added to the denominator.", "1e-8"},
    {AttrDef::real, "weight_decay", "How much of the parameter decays, times lr.", "0.01"},
};
constexpr StateDef states[] = {
    {"exp_avg", 2, 1},
    {"exp_avg_sq", 3, 2},
    {"step", 4, 3, true},
};
constexpr Sample samples[] = {
    {"float[5,7] float[5,7] float[5,7] float[5,7]>0.1 float32[]>0.5", "lr=0.1 weight_decay=0.1"},
    {"float[3] float[3] float[3] float[3]>0.1 float32[]>0.5"},
    {"float[] float[] float[] float[]>0.1 float32[]>0.5"},
};

}  // namespace

extern constinit const OpDef adamw{
    .name = "adamw",
    .doc = "One step of Adam with decoupled weight decay, as torch.optim.AdamW.",
    .samples = samples,
    .inputs = "param,grad,exp_avg,exp_avg_sq,step",
    .attrs = attrs,
    .rule = {.types = optimizer_types, .signatures = optimizer_signatures},
    .cpu = [](const Call& call) { adam_run(call, true); },
    .cuda = adamw_cuda,
    .alias = 1,
    .states = states,
    .hidden = true,
};

}  // namespace sluice::ops
