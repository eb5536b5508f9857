"""When work will be done: the same limits as the windows', as a flow instead of call by call.

A forecast walks from one moment at which something changes to the next: a window gives units back, a
period turns, a closure ends, a line of jobs is done. In between calls flow evenly, as fast as the
slowest of their limits lets them. It costs what changes, not what there is to do: ten jobs and ten
million take about as long.

`lines` what there is to do · `known` a pool as far as it is known · `meters` a limit as a flow sees it ·
`building` a pool as meters · `meeting` which limits lines meet · `filling` who gets how much ·
`walk` from change to change · `answer` when which line is done
"""
