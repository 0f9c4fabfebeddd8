/* Named places between two shared-memory operations, where a test build can stop or yield.
 *
 * With SHMLIMIT_SYNC_POINTS the program that includes this defines shmlimit_sync(); a product
 * build compiles the points away.
 */
#ifndef SHMLIMIT_SYNCPOINTS_H
#define SHMLIMIT_SYNCPOINTS_H

enum sync_point {
    SYNC_SCANNED,     /* the candidates were read, nothing was written yet */
    SYNC_STEP,        /* before the CAS that consumes from a committed slot */
    SYNC_CLAIM,       /* before the CAS that claims a dead slot */
    SYNC_CLAIMED,     /* after it: uncommitted, before the rescan */
    SYNC_EVICT,       /* before the CAS that takes over a live slot */
    SYNC_KILL,        /* before the CAS that kills an uncommitted twin */
    SYNC_COMMIT_READ, /* the rescan saw no twin, before the clock is read */
    SYNC_COMMIT,      /* the clock was read, before the CAS that commits */
    SYNC_CLEAR_COUNT, /* a clear has read the key's slots, not yet counted the dead ones */
    SYNC_ABANDON,     /* before the CAS of a clear */
    SYNC_PUBLISH_WORD, /* some words of an idle buffer are written */
    SYNC_PUBLISH,     /* all of them, and not yet valid */
    SYNC_PUBLISHED,   /* valid, and what comes next is not published yet */
    SYNC_DIVIDE,      /* all limits are divided by a new count, and it does not say so yet */
    SYNC_POINTS
};

#ifdef SHMLIMIT_SYNC_POINTS
void shmlimit_sync(enum sync_point point);
#define SYNC(point) shmlimit_sync(point)
#else
#define SYNC(point) ((void)0)
#endif

#endif
