# SPDX-License-Identifier: Apache-2.0
"""Trains a small network on Fashion-MNIST (Debian's package dataset-fashion-mnist).

usage: fashion_mnist.py [--config examples/parallel/dp2_tp2.toml] [--epochs 3] [--save net.safetensors]
"""

import argparse
import pathlib
import time

import sluice as sl
from sluice import nn, optim

HERE = pathlib.Path(__file__).resolve().parent
DATA = "/usr/share/datasets/fashion-mnist"


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.flatten = nn.Flatten()
        self.fc1, self.fc2, self.fc3 = nn.Linear(784, 512), nn.Linear(512, 512), nn.Linear(512, 10)

    def forward(self, x):
        x = self.flatten(x)
        x = sl.relu(self.fc1(x))
        x = sl.relu(self.fc2(x))
        return self.fc3(x)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--config", default=HERE / "parallel" / "dp2_tp2.toml", help="where and how it runs")
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--data", default=DATA)
    parser.add_argument("--save", help="a safetensors file for the weights")
    args = parser.parse_args()

    job = sl.Job(
        Net(),
        loss=nn.functional.cross_entropy,
        optimizer=optim.Adam(1e-3),
        data=sl.data.idx(args.data, split="train"),
    )
    begin = time.monotonic()
    job.fit(epochs=args.epochs, batch=128, config=args.config)
    seconds = time.monotonic() - begin
    test = job.evaluate(data=sl.data.idx(args.data, split="test"), batch=500)
    print(f"test accuracy {test['accuracy']:.4f}  loss {test['loss']:.4f}  training took {seconds:.1f} s")
    job.plan(batch=128).show()
    if args.save:
        sl.save_safetensors(job.state_dict(), args.save)


if __name__ == "__main__":
    main()
