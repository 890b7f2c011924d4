{-# OPTIONS_GHC -fno-cse -fno-full-laziness #-}
-- Functions, recursion, local functions and closures of Haskell.
module Main where

import Control.Monad (forM, forM_, when)
import Data.IORef
import System.IO.Unsafe (unsafePerformIO)

counter :: () -> IORef Int
counter () = unsafePerformIO (newIORef 0)
{-# NOINLINE counter #-}

nAdd, nFact, nInner, nBuild :: IORef Int
nAdd = unsafePerformIO (newIORef 0)
{-# NOINLINE nAdd #-}
nFact = unsafePerformIO (newIORef 0)
{-# NOINLINE nFact #-}
nInner = unsafePerformIO (newIORef 0)
{-# NOINLINE nInner #-}
nBuild = unsafePerformIO (newIORef 0)
{-# NOINLINE nBuild #-}

hit :: IORef Int -> IO ()
hit r = modifyIORef' r (+ 1)

{-
--: add = nAdd
-}
add :: Int -> Int -> IO Int
add a b = do
  hit nAdd
  return (a + b)
{-# NOINLINE add #-}

{-
--: fact = nFact
-}
fact :: Int -> IO Int
fact n = do
  hit nFact
  if n <= 1 then return 1 else do
    r <- fact (n - 1)
    return (n * r)
{-# NOINLINE fact #-}

-- Allocates, so that it is entered again after a collection.
{-
--: build = nBuild
-}
build :: Int -> IO [Int]
build n = do
  hit nBuild
  return [n .. n + 3]
{-# NOINLINE build #-}

{-
--: inner = nInner
-}
outer :: Int -> IO Int
outer k = go k 0
  where
    go 0 sum' = return sum'
    go n sum' = inner n >>= \x -> go (n - 1) (sum' + x)
    inner x = do
      hit nInner
      return (x * k)
    {-# NOINLINE inner #-}
{-# NOINLINE outer #-}

main :: IO ()
main = do
  sums <- forM [1 .. 9] $ \i -> do
    a <- add i 3
    f <- fact i
    o <- outer i
    return (a + f + o)
  lists <- forM [1 .. 200000] build
  when (sum sums + sum (map sum lists) == 1) $ putStrLn "."
  forM_ [("nAdd", nAdd), ("nFact", nFact), ("nInner", nInner), ("nBuild", nBuild)] $ \(name, r) -> do
    n <- readIORef r
    putStrLn (name ++ " " ++ show n)
