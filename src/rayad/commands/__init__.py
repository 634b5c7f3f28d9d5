"""The commands of ``rayad``, a file for each subject; ``rayad.cli`` names them all.

Every call of ``rayad`` imports all of these files, to list the commands. So what needs Ray imports it inside a function.
"""
