"""Pictures of a run, made from its evidence alone: who held which page when, and who reached it.

    records --> edges --> book of each life --> histories of pages --+--> findings
                  |                                                  +--> scenes --> SVG
                  +--> story                                                          |
                                               parts of a page --> shell, one file <--+

Nothing here knows where the records came from: whoever has the evidence of a stack can have it
drawn. What the evidence does not say is not filled in. It is drawn as unknown, counted, and stated.
"""
