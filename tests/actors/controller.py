"""A controller without any code of Rayad: listings 7.1 and 7.2 of seed 002 in plain Python, one step after another.

Usage: ``python controller.py FOLDER VERTEX GOAL LOOKS``; before each look it waits for a line on its standard input, and answers with one.
"""

import json
import os
import sys

folder, vertex, goal, looks = sys.argv[1], sys.argv[2], float(sys.argv[3]), int(sys.argv[4])
last = None
for _ in range(looks):
    sys.stdin.readline()
    try:
        with open(os.path.join(folder, f"stats_{vertex}.json")) as file:
            stage = json.load(file)[vertex]
    except FileNotFoundError:
        print("nothing yet", flush=True)
        continue
    items, counting, first = 0, False, None
    for moment in stage:
        if counting:
            items += sum(compute["ItemsProduced"] for compute in stage[moment].values())
        if moment == last:
            counting, first = True, moment
    last = max(stage, key=int)
    if first is None or int(last) == int(first):
        print("first look", flush=True)
        continue
    throughput = items / ((int(last) - int(first)) / 1000)
    with open(os.path.join(folder, "parameters.json")) as file:
        parameters = json.load(file)
    now, ratio = parameters[vertex], throughput / goal
    if throughput > goal:
        factor = 4 if ratio > 2 else 2 if ratio > 1.5 else 1 if ratio > 1.25 else 0
        if now > factor:
            parameters[vertex] = now - factor
    elif throughput < goal:
        factor = 4 if ratio < 0.5 else 2 if ratio < 0.75 else 1 if ratio < 0.9375 else 0
        if now + factor < 48:
            parameters[vertex] = now + factor
    with open(os.path.join(folder, "parameters.json"), "w") as file:
        json.dump(parameters, file)
    print(f"{throughput:.6g} {parameters[vertex]}", flush=True)
