/*
 * condvar.rs with its requeue and its timeouts, for Spin: `ci/spin.sh` searches all states.
 *
 * What loom cannot: several waiters whose waits end at any time, asleep here or moved to the lock. Every step
 * that is one atomic access in the code is one here. The lock is its promise, which lock_loom.rs is about: one
 * holder; an unlock that finds guests, and nobody on its way, gives a token and wakes one. With guards that are
 * taken (`wait_owned`) nobody is moved, and a waiter may be killed: with a robust lock the others go on.
 *
 * It must hold that all waiters end, and that nothing is left behind then but the count of who was killed. MUTANT plants a fault, which must
 * be found.
 */

#ifndef MUTANT
#define MUTANT 0
#endif
#define SEQUENCE_LAST 1   /* who notifies all sets ALL before it changes the sequence */
#define IMPATIENT 2       /* whose wait timed out does not look for ALL */
#define FORGETFUL 3       /* guests are moved where a token lies that nobody took */
#define LATE 4            /* a waiter counts itself when it has unlocked */
#define SILENT 5          /* ALL wakes nobody */
#define UNEXPECTED 6      /* guests are moved, but the lock is not told */
#define UNTOLD 7          /* who waits with a guard that is taken does not say so */

#define WAITERS 3

/* Where a waiter is. */
#define AWAKE 0
#define ON_CONDVAR 1
#define ON_LOCK 2
byte place[WAITERS];

/* The lock. */
bit held;
bit token;
bit waking;
byte guests;

/* The condition variable, and what is waited for. */
byte sequence;
byte waiting;
bit all;
bit at_once;
bit ready;

/* All wait with guards that are taken. */
bit owned;

byte done;
byte dead;

/* futex_wake of one, whichever. */
inline wake_one(where) {
    if
    :: place[0] == where -> place[0] = AWAKE
    :: place[1] == where -> place[1] = AWAKE
    :: place[2] == where -> place[2] = AWAKE
    :: place[0] != where && place[1] != where && place[2] != where -> skip
    fi
}

inline unlock() {
    atomic {
        gave = 0;
        if
        :: guests > 0 && !waking -> waking = 1; guests--; token = 1; gave = 1
        :: else -> skip
        fi
    }
    held = 0;
    if
    :: gave -> atomic { wake_one(ON_LOCK) }
    :: else -> skip
    fi
}

inline lock() {
    atomic { !held -> held = 1 }
}

/* The lock again, for one that may have been its guest. */
inline lock_as_guest() {
    atomic { owes = token; token = 0 }
    atomic {
        !held -> held = 1;
        if
        :: owes -> waking = 0
        :: else -> skip
        fi
    }
}

/* futex_wake of all that sleep on the condition variable. */
inline wake_all() {
    atomic {
        n = 0;
        do
        :: n < WAITERS && place[n] == ON_CONDVAR -> place[n] = AWAKE; n++
        :: n < WAITERS && place[n] != ON_CONDVAR -> n++
        :: n == WAITERS -> n = 0; break
        od
    }
}

/* futex_requeue of up to `most`, and the lock is told; by its holder. */
inline hand_over(most) {
    do
    :: seen = sequence;
       atomic {
           if
           :: seen == sequence ->
              moved = 0;
              n = 0;
              do
              :: n < WAITERS && place[n] == ON_CONDVAR && moved < most ->
                 place[n] = ON_LOCK; moved++; n++
              :: n < WAITERS && !(place[n] == ON_CONDVAR && moved < most) -> n++
              :: n == WAITERS -> break
              od;
              n = 0;
              break
           :: else -> skip
           fi
       }
    od;
    if
    :: MUTANT == UNEXPECTED -> skip
    :: else ->
       /* A token that nobody took: its guest had woken by itself before. */
       if
       :: MUTANT == FORGETFUL -> skip
       :: else ->
          atomic { stale = token; token = 0 }
          if
          :: stale -> waking = 0
          :: else -> skip
          fi
       fi;
       atomic { guests = guests + moved; moved = 0; stale = 0 }
    fi
}

proctype waiter(byte me; bit is_timed; bit is_mortal) {
    bit gave, owes, timed_out, found, stale;
    byte read, seen, moved, n;
    lock();
    do
    :: ready -> break
    :: else ->
       if
       :: MUTANT != LATE -> waiting++
       :: else -> skip
       fi;
       if
       :: owned && MUTANT != UNTOLD -> at_once = 1
       :: else -> skip
       fi;
       read = sequence;
       unlock();
       if
       :: MUTANT == LATE -> waiting++
       :: else -> skip
       fi;
       atomic {
           timed_out = 0;
           if
           :: read == sequence -> place[me] = ON_CONDVAR
           :: else -> skip
           fi
       }
       if
       :: place[me] == AWAKE -> skip
       :: atomic { is_timed && place[me] != AWAKE -> place[me] = AWAKE; timed_out = 1 }
       fi;
       if
       :: owned && is_mortal -> atomic { place[me] = AWAKE; dead++; goto end }
       :: true -> skip
       fi;
       if
       :: owned -> lock()
       :: else -> lock_as_guest()
       fi;
       atomic { waiting--; found = all }
       if
       :: found && owned -> all = 0; wake_all()
       :: found && !owned && !(MUTANT == IMPATIENT && timed_out) ->
          atomic { found = all && waiting > 0; all = 0 }
          if
          :: found -> hand_over(WAITERS)
          :: else -> skip
          fi
       :: else -> skip
       fi;
       found = 0;
       read = 0;
       seen = 0
    od;
    unlock();
end:
    done++
}

inline notify_all() {
    if
    :: waiting != 0 ->
       if
       :: MUTANT != SEQUENCE_LAST -> sequence++
       :: else -> skip
       fi;
       atomic {
           if
           :: at_once -> skip
           :: !at_once && waiting != 0 -> all = 1; told = 1
           :: else -> skip
           fi
       }
       if
       :: MUTANT == SEQUENCE_LAST -> sequence++
       :: else -> skip
       fi;
       if
       :: told && MUTANT != SILENT -> atomic { wake_one(ON_CONDVAR) }
       :: at_once -> wake_all()
       :: else -> skip
       fi
    :: else -> skip
    fi
}

/* Tells one, or two, before it unlocks. */
inline notify_locked(most) {
    if
    :: waiting != 0 -> sequence++; hand_over(most)
    :: else -> skip
    fi
}

/* Tells all: after it has unlocked, before, in two or three turns, or one by one. */
proctype notifier() {
    bit gave, told, stale;
    byte seen, moved, n;
    lock();
    ready = 1;
    if
    :: unlock();
       notify_all()
    :: !owned ->
       notify_locked(WAITERS);
       unlock()
    :: !owned ->
       notify_locked(1);
       unlock();
       lock();
       notify_locked(WAITERS);
       unlock()
    :: !owned ->
       notify_locked(2);
       unlock();
       lock();
       notify_locked(1);
       unlock();
       lock();
       notify_locked(WAITERS);
       unlock()
    :: unlock();
       do
       :: n < WAITERS ->
          if
          :: waiting != 0 -> sequence++; atomic { wake_one(ON_CONDVAR) }
          :: else -> skip
          fi;
          n++
       :: else -> break
       od
    fi;
    atomic {
        done == WAITERS;
        assert(waiting == dead && !all && !held);
        assert(place[0] == AWAKE && place[1] == AWAKE && place[2] == AWAKE)
    }
}

init {
    atomic {
        if
        :: owned = 0
        :: owned = 1
        fi;
        run waiter(0, 1, 1);
        run waiter(1, 1, 0);
        run waiter(2, 0, 0);
        run notifier()
    }
}
